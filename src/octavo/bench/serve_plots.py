"""Charts of a load test: distributions of latencies, and the server's work over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.bench.http_client import Result
from octavo.bench.metrics import METRICS, Latencies
from octavo.bench.plots.chart import Chart, Page, Series

_BINS = 120  # stretches of time that rates are counted in
_QUANTILES = np.linspace(0.0, 100.0, 201)


def make_page(title: str, facts: Sequence[tuple[str, str]], results: Sequence[Result]) -> Page:
    """The page of a test; requests that failed are left out."""
    done = [result for result in results if result.error is None and result.arrivals]
    latencies = Latencies.of(done)
    charts = [
        _percentiles(name, words, getattr(latencies, name)) for name, words in METRICS.items()
    ]
    return Page(title, facts, [*charts, *_over_time(done)])


def _percentiles(name: str, words: str, values: Sequence[float]) -> Chart:
    ys = [float(y) for y in np.percentile(values, _QUANTILES)] if values else []
    xs = [float(x) for x in _QUANTILES[: len(ys)]]
    series = Series(name.upper(), xs, ys)
    return Chart(f"{name.upper()}: {words}", "percent of all below", "ms", [series], log_y=True)


def _over_time(done: Sequence[Result]) -> list[Chart]:
    if not done:
        return []
    begin = min(result.start for result in done)
    length = max(max(result.end for result in done) - begin, 1e-9)
    edges = np.linspace(0.0, length, _BINS + 1)
    middles = [float(x) for x in (edges[1:] + edges[:-1]) / 2]
    arrivals = [at - begin for result in done for at in result.arrivals]
    rate = np.histogram(arrivals, edges)[0] / (length / _BINS)
    starts = np.sort([result.start - begin for result in done])
    ends = np.sort([result.end - begin for result in done])
    running = np.searchsorted(starts, middles) - np.searchsorted(ends, middles)
    first = sorted(done, key=lambda result: result.start)
    return [
        Chart(
            "Events received",
            "s",
            "events/s",
            [Series("events", middles, [float(y) for y in rate])],
        ),
        Chart(
            "Requests in flight",
            "s",
            "requests",
            [Series("requests", middles, [float(y) for y in running])],
        ),
        Chart(
            "Time to first token by the time of the request",
            "s",
            "ms",
            [
                Series(
                    "TTFT",
                    [result.start - begin for result in first],
                    [1e3 * (result.arrivals[0] - result.start) for result in first],
                    "points",
                )
            ],
        ),
    ]
