"""Results of many requests -> throughput, latency percentiles and goodput."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from octavo.bench.http_client import Result
from octavo.types.errors import ConfigError

METRICS = {
    "ttft": "time to first token",
    "tpot": "time per output token after the first",
    "itl": "time between two events",
    "e2el": "time of the whole request",
}


@dataclass(frozen=True)
class Latencies:
    """Latencies of the completed requests, in milliseconds; per request, itl per event."""

    ttft: list[float]
    tpot: list[float]  # only of requests with two tokens or more
    itl: list[float]
    e2el: list[float]

    @classmethod
    def of(cls, results: Iterable[Result]) -> Latencies:
        """Those of the results without an error."""
        latencies = cls([], [], [], [])
        for result in results:
            if result.error is None and result.arrivals:
                latencies.ttft.append(1e3 * (result.arrivals[0] - result.start))
                latencies.e2el.append(1e3 * (result.arrivals[-1] - result.start))
                latencies.itl.extend(1e3 * np.diff(result.arrivals))
                tpot = time_per_token(result)
                if tpot is not None:
                    latencies.tpot.append(tpot)
        return latencies


def time_per_token(result: Result) -> float | None:
    """Milliseconds per output token after the first; None for less than two."""
    tokens = output_tokens(result)
    if tokens < 2 or not result.arrivals:
        return None
    return 1e3 * (result.arrivals[-1] - result.arrivals[0]) / (tokens - 1)


def output_tokens(result: Result) -> int:
    """Tokens the server counted, or else the events."""
    return len(result.arrivals) if result.output_tokens is None else result.output_tokens


def summarize(
    results: Sequence[Result],
    *,
    percentiles: Sequence[float],
    metrics: Sequence[str],
    goodput: Mapping[str, float],
) -> dict[str, float | int]:
    """The figures under the names that benchmark results of this kind have.

    `goodput`: metric -> most milliseconds of a request that counts as served well.
    """
    done = [result for result in results if result.error is None]
    duration = _duration(results)
    num_input = sum(result.prompt_tokens or 0 for result in done)
    num_output = sum(map(output_tokens, done))
    figures: dict[str, float | int] = {
        "duration": duration,
        "completed": len(done),
        "failed": len(results) - len(done),
        "total_input_tokens": num_input,
        "total_output_tokens": num_output,
        "request_throughput": len(done) / duration,
        "output_throughput": num_output / duration,
        "total_token_throughput": (num_input + num_output) / duration,
        "max_concurrent_requests": _max_concurrent(done),
    }
    if goodput:
        good = sum(_is_good(result, goodput) for result in done if result.arrivals)
        figures["request_goodput"] = good / duration
    latencies = Latencies.of(done)
    for name in metrics:
        figures |= _statistics(name, getattr(latencies, name), percentiles)
    return figures


def parse_goodput(limits: Sequence[str]) -> dict[str, float]:
    """("ttft:500", "tpot:50") -> {"ttft": 500.0, "tpot": 50.0}. Raises ConfigError."""
    parsed = {}
    for limit in limits:
        name, _, value = limit.partition(":")
        if not value or name not in ("ttft", "tpot", "e2el"):
            raise ConfigError(f"goodput={limit!r}: write ttft:MS, tpot:MS or e2el:MS")
        parsed[name] = _number("goodput", value)
    return parsed


def parse_percentiles(text: str) -> list[float]:
    """ "50,99" -> [50.0, 99.0]. Raises ConfigError."""
    values = [_number("metric_percentiles", part) for part in text.split(",")]
    if not all(0 <= value <= 100 for value in values):
        raise ConfigError(f"metric_percentiles={text!r}: each is between 0 and 100")
    return values


def parse_metrics(text: str) -> list[str]:
    """ "ttft,itl" -> ["ttft", "itl"]. Raises ConfigError."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise ConfigError(f"percentile_metrics={text!r}: there are {', '.join(METRICS)}")
    return names


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ConfigError(f"{name}: {text!r} is not a number >= 0")
    return value


def _statistics(
    name: str, values: Sequence[float], percentiles: Sequence[float]
) -> dict[str, float | int]:
    if not values:
        return {}
    figures: dict[str, float | int] = {
        f"mean_{name}_ms": float(np.mean(values)),
        f"median_{name}_ms": float(np.median(values)),
        f"std_{name}_ms": float(np.std(values)),
    }
    for percentile in percentiles:
        figures[f"p{percentile:g}_{name}_ms"] = float(np.percentile(values, percentile))
    return figures


def _duration(results: Sequence[Result]) -> float:
    if not results:
        return 1e-9
    start = min(result.start for result in results)
    return max(max(result.end for result in results) - start, 1e-9)


def _max_concurrent(results: Sequence[Result]) -> int:
    changes = [(result.start, 1) for result in results] + [(result.end, -1) for result in results]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most


def _is_good(result: Result, goodput: Mapping[str, float]) -> bool:
    values = {
        "ttft": 1e3 * (result.arrivals[0] - result.start),
        "tpot": time_per_token(result) or 0.0,
        "e2el": 1e3 * (result.arrivals[-1] - result.start),
    }
    return all(values[name] <= limit for name, limit in goodput.items())
