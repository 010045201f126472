"""Metrics as plain objects, for programs that use LLM without a Prometheus server."""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric as Family


@dataclass(frozen=True)
class Metric:
    """A number that was measured, with its labels."""

    name: str
    labels: dict[str, str]


@dataclass(frozen=True)
class Counter(Metric):
    """A count since the start."""

    value: int


@dataclass(frozen=True)
class Gauge(Metric):
    """A value at this moment."""

    value: float


@dataclass(frozen=True)
class Histogram(Metric):
    """Observations; `buckets` maps an upper bound to how many were at most that."""

    count: int = 0
    sum: float = 0.0
    buckets: dict[str, int] = field(default_factory=dict)


def read_metrics(registry: CollectorRegistry) -> list[Metric]:
    """Every metric of a registry."""
    return [metric for family in registry.collect() for metric in _read(family)]


def _read(family: Family) -> list[Metric]:
    if family.type == "histogram":
        return _read_histograms(family)
    if family.type == "counter":
        return [Counter(family.name, s.labels, int(s.value)) for s in family.samples]
    return [Gauge(family.name, s.labels, s.value) for s in family.samples]


def _read_histograms(family: Family) -> list[Metric]:
    counts: dict[tuple[tuple[str, str], ...], dict[str, int]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in family.samples:
        bound = sample.labels.get("le")
        key = tuple((k, v) for k, v in sample.labels.items() if k != "le")
        if bound is not None:
            counts.setdefault(key, {})[bound] = int(sample.value)
        elif sample.name.endswith("_sum"):
            sums[key] = sample.value
    return [
        Histogram(family.name, dict(key), buckets["+Inf"], sums.get(key, 0.0), buckets)
        for key, buckets in counts.items()
    ]
