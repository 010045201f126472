"""`octavo bench startup`: seconds from asking for an engine to its first token, by phase."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.bench.offline import RandomPrompts, parse
from octavo.bench.report import save
from octavo.config.options import option
from octavo.engine.metrics_reader import Gauge
from octavo.entrypoints.llm import LLM
from octavo.types.sampling_params import SamplingParams
from octavo.utils import envs

METRIC = "startup_seconds"
FIRST_TOKEN = "first token"


@dataclass(frozen=True, kw_only=True)
class StartupOptions:
    """How often to start."""

    num_starts: int = option(
        3, "Starts measured, one after the other. The first finds no compiled kernel.", low=1
    )
    keep_kernels: bool = option(
        False, "Let the first start use the kernel cache as it is, and add to it."
    )
    output_json: str | None = option(None, "File for the figures.")


def main(argv: Sequence[str]) -> int:
    """Run the benchmark."""
    engine, options = parse(
        argv, StartupOptions, "octavo bench startup", "Measure how long an engine takes to start."
    )
    with tempfile.TemporaryDirectory(prefix="octavo-kernels-") as folder:
        if not options.keep_kernels:
            envs.use_kernel_cache_folder(Path(folder))
        starts = [start(engine) for _ in range(options.num_starts)]
    print(table(starts))
    if options.output_json is not None:
        content = {"model_id": str(engine.get("model")), **vars(options), "starts": starts}
        save(content | summary(starts), Path(options.output_json))
    return 0


def start(engine: dict[str, Any]) -> dict[str, float]:
    """Seconds of each phase of one start, the first token's last."""
    llm = LLM(**engine | {"disable_log_stats": False})
    try:
        phases = {
            metric.labels["phase"]: metric.value
            for metric in llm.get_metrics()
            if isinstance(metric, Gauge) and metric.name.endswith(METRIC)
        }
        prompt = RandomPrompts.of(llm).make([8], random.Random(0))
        began = time.monotonic()
        params = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True, detokenize=False)
        llm.generate(prompt, params, use_tqdm=False)
        return phases | {FIRST_TOKEN: time.monotonic() - began}
    finally:
        llm.shutdown()


def summary(starts: Sequence[dict[str, float]]) -> dict[str, float | None]:
    """Seconds of the first start, and the median of the others."""
    totals = [sum(phases.values()) for phases in starts]
    return {
        "first_start": totals[0],
        "later_start": statistics.median(totals[1:]) if totals[1:] else None,
    }


def table(starts: Sequence[dict[str, float]]) -> str:
    """A line per phase and a column per start, in seconds."""
    names = list(dict.fromkeys(name for phases in starts for name in phases))
    head = ["first", "second", *(f"{number}th" for number in range(3, len(starts) + 1))]
    lines = [f"{'seconds':<20}" + "".join(f"{title:>10}" for title in head[: len(starts)])]
    for name in names:
        cells = "".join(f"{phases.get(name, 0.0):>10.2f}" for phases in starts)
        lines.append(f"{name:<20}{cells}")
    totals = "".join(f"{sum(phases.values()):>10.2f}" for phases in starts)
    return "\n".join([*lines, f"{'sum':<20}{totals}"])
