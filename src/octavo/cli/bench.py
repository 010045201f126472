"""`octavo bench NAME`: measurements, each a command of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from octavo.config.convert import nearest
from octavo.types.errors import ConfigError
from octavo.utils.registry import Registry

BENCHMARKS: Registry[Callable[[Sequence[str]], int | None]] = Registry(
    "benchmark",
    {
        "latency": "octavo.bench.latency:main",
        "throughput": "octavo.bench.throughput:main",
        "serve": "octavo.bench.serve:main",
        "startup": "octavo.bench.startup:main",
        "ladder": "octavo.bench.ladder:main",
        "sweep": "octavo.bench.sweep:main",
        "trace": "octavo.bench.trace:main",
    },
)

# (their options, which other flags they take)
OPTIONS: dict[str, tuple[str, Literal["none", "engine", "engine and server"]]] = {
    "latency": ("octavo.bench.latency:LatencyOptions", "engine"),
    "throughput": ("octavo.bench.throughput:ThroughputOptions", "engine"),
    "serve": ("octavo.bench.serve_options:ServeBenchOptions", "none"),
    "startup": ("octavo.bench.startup:StartupOptions", "engine"),
    "ladder": ("octavo.bench.ladder:LadderOptions", "engine"),
    "sweep": ("octavo.bench.sweep:SweepOptions", "engine and server"),
    "trace": ("octavo.bench.trace:TraceOptions", "engine"),
}

SUMMARIES = {
    "latency": "time of one batch, repeated",
    "throughput": "tokens per second of many requests given at once",
    "serve": "latencies and throughput of a running server under load",
    "startup": "seconds from asking for an engine to its first token, by phase",
    "ladder": "the cases an engine is judged by, against floors and other engines",
    "sweep": "throughput against latency of a server, over settings of its knobs",
    "trace": "a Perfetto trace of steps, their kernels and the gaps between them",
}


def main(argv: Sequence[str]) -> int:
    """Run the benchmark that the first word names."""
    width = max(map(len, SUMMARIES))
    names = "\n".join(f"  {name:<{width}}  {text}" for name, text in SUMMARIES.items())
    usage = f"usage: octavo bench NAME [ARGUMENTS]\n\n{names}\n"
    if argv and argv[0] in ("-h", "--help"):
        print(usage)
        return 0
    if not argv:
        raise ConfigError(f"which benchmark? There are {', '.join(SUMMARIES)}")
    if argv[0] not in BENCHMARKS:
        guess = nearest(argv[0], SUMMARIES) or f"; there are {', '.join(SUMMARIES)}"
        raise ConfigError(f"unknown benchmark {argv[0]!r}{guess}")
    return BENCHMARKS.get(argv[0])(argv[1:]) or 0
