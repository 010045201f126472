"""What is opened to measure a side of the ladder: its LLM, its start, its server, its trace."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from octavo.bench.engines import Engine, EngineCommand
from octavo.bench.ladder_run import Figures, Measure
from octavo.bench.load import Target, Timed, choose_num_clients, run_load
from octavo.bench.metrics import summarize
from octavo.bench.rungs import Rung
from octavo.bench.server_process import ServerProcess
from octavo.platforms.detect import usable_cpus
from octavo.types.errors import OctavoError

_ROUNDS = 8  # requests of a serving rung, per stream
_MIN_REQUESTS = 20
_SERVE_FIGURES = {
    "output": "output_throughput",
    "TTFT mean": "mean_ttft_ms",
    "TTFT median": "median_ttft_ms",
    "TPOT median": "median_tpot_ms",
    "ITL p99": "p99_itl_ms",
}


@contextmanager
def open_engine(command: EngineCommand, vocab: int, facts: dict[str, Any]) -> Iterator[Measure]:
    """An engine that runs batches of ids below `vocab`; what it says of itself goes to `facts`."""
    engine = Engine(command)
    facts |= engine.facts
    try:
        yield lambda rung, number: _measure_batch(engine, rung, number, vocab)
    finally:
        engine.stop()


def _measure_batch(engine: Engine, rung: Rung, number: int, vocab: int) -> Figures:
    batch: dict[str, Any] = {
        "groups": [[g.count, g.lengths.low, g.lengths.high] for g in rung.groups],
        "output": [rung.output.low, rung.output.high],
        "shared": rung.shared,
        "shared_seed": f"shared {number}",
        "seed": f"own {number}",
        "vocab": vocab,
    }
    if rung.kind == "decode":
        # Prompts are computed once and then found in the cache: the difference of two batches
        # would otherwise be a small one of long times. Without a cache it is the same, less exact.
        one = batch | {"output": [1, 1]}
        engine.ask(one)
        first = engine.ask(one)["seconds"]
        steps = rung.output.high
        whole = engine.ask(batch | {"output": [steps + 1, steps + 1]})["seconds"]
        return {"time per token": 1e3 * (whole - first) / steps}
    if rung.kind == "prefix":
        one = {"groups": [[1, *batch["groups"][0][1:]]], "output": [1, 1]}
        engine.ask(batch | one | {"seed": f"first {number}"})
        return {"time": engine.ask(batch)["seconds"]}
    answer = engine.ask(batch)
    if rung.kind == "batch":
        return {"output": answer["output"] / answer["seconds"]}
    if rung.count == 1:
        return {"time": 1e3 * answer["seconds"]}
    return {"input": answer["input"] / answer["seconds"]}


@contextmanager
def open_starts(command: EngineCommand) -> Iterator[Measure]:
    """Starts: a cold one finds nothing compiled, a warm one what a start before has compiled."""
    with tempfile.TemporaryDirectory(prefix="octavo-ladder-") as folder:
        warm = Path(folder) / "warm"

        def measure(rung: Rung, number: int) -> Figures:
            if not rung.cold and not warm.exists():
                warm.mkdir()
                Engine(command, warm).stop()
            engine = Engine(command, Path(folder) / f"cold {number}" if rung.cold else warm)
            engine.stop()
            return {"time": engine.start_seconds}

        yield measure


@contextmanager
def open_server(
    server_command: list[str] | str, vocab: int, facts: dict[str, Any]
) -> Iterator[Measure]:
    """A server under load from processes of its own; its start goes to `facts`."""
    with ServerProcess(server_command) as server:
        facts["server_start_seconds"] = server.start_seconds
        yield lambda rung, number: _measure_server(server.url, rung, number, vocab)


def _measure_server(url: str, rung: Rung, number: int, vocab: int) -> Figures:
    streams = rung.count
    rng = random.Random(number)
    bodies = []
    for _ in range(max(_MIN_REQUESTS, _ROUNDS * streams)):
        length = rng.randint(rung.groups[0].lengths.low, rung.groups[0].lengths.high)
        body = {
            "prompt": [rng.randrange(vocab) for _ in range(length)],
            "max_tokens": rng.randint(rung.output.low, rung.output.high),
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        bodies.append(msgspec.json.encode(body))
    results = run_load(
        Target(url, "/v1/completions", {}),
        [Timed(index, body, 0.0) for index, body in enumerate(bodies)],
        num_clients=choose_num_clients(len(bodies), streams, usable_cpus()),
        max_concurrency=streams,
        on_progress=lambda done: None,
    )
    figures = summarize(results, percentiles=[99.0], metrics=["ttft", "tpot", "itl"], goodput={})
    if figures["failed"]:
        error = next(result.error for result in results if result.error is not None)
        raise OctavoError(f"{figures['failed']} requests to {url} failed; one: {error}")
    return {name: float(figures[key]) for name, key in _SERVE_FIGURES.items() if key in figures}


@contextmanager
def open_trace(values: Mapping[str, Any]) -> Iterator[Measure]:
    """Traces of decode steps, by `octavo bench trace` with an engine of these options."""
    with tempfile.TemporaryDirectory(prefix="octavo-ladder-") as name:
        folder = Path(name)
        (folder / "engine.yaml").write_text(json.dumps(dict(values)), encoding="utf-8")

        def measure(rung: Rung, number: int) -> Figures:
            group = rung.groups[0]
            words = ["bench", "trace", "--config", str(folder / "engine.yaml")]
            words += ["--batch", str(group.count), "--input-len", str(group.lengths.high)]
            words += ["--output-dir", name, "--output-json", str(folder / "trace.json")]
            command = [sys.executable, "-m", "octavo.cli.main", *words]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise OctavoError(f"octavo bench trace failed: {done.stderr[-2000:]}")
            steps = json.loads((folder / "trace.json").read_text())["steps"]["decode"]
            return {
                "share of the step": steps["host_share"],
                "idle between steps": steps["gap_mean_ms"],
            }

        yield measure
