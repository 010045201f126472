"""`octavo bench latency`: the time of one batch, repeated."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from octavo.bench.offline import OfflineOptions, RandomPrompts, run
from octavo.config.options import option
from octavo.entrypoints.llm import LLM
from octavo.types.sampling_params import SamplingParams

_PERCENTILES = (10, 25, 50, 75, 90, 99)


@dataclass(frozen=True, kw_only=True)
class LatencyOptions(OfflineOptions):
    """Shape of the batch."""

    input_len: int = option(32, "Tokens of each prompt.", low=1, high=10**7)
    batch_size: int = option(8, "Requests in the batch.", low=1, high=10**5)
    num_iters_warmup: int = option(3, "Batches run before, not measured.", low=0, high=10**4)
    num_iters: int = option(10, "Batches measured.", low=1, high=10**5)


def main(argv: Sequence[str]) -> int:
    """Run the benchmark."""
    command = ("octavo bench latency", "Measure the time of one batch.")
    return run(argv, LatencyOptions, command, figures, _show)


def figures(llm: LLM, options: LatencyOptions) -> dict[str, Any]:
    """Mean, percentiles and the single times, in seconds."""
    seconds = measure(llm, options)
    return {
        "avg_latency": float(np.mean(seconds)),
        "latencies": seconds,
        "percentiles": {str(p): float(np.percentile(seconds, p)) for p in _PERCENTILES},
    }


def measure(llm: LLM, options: LatencyOptions) -> list[float]:
    """Seconds of each measured batch; every batch has prompts of its own."""
    params = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=options.output_len)
    source, rng = RandomPrompts.of(llm), random.Random(0)
    lengths = [options.input_len] * options.batch_size
    seconds = []
    total = options.num_iters_warmup + options.num_iters
    for number in tqdm(range(total), desc="batches", disable=options.disable_tqdm):
        prompts = source.make(lengths, rng)
        start = time.perf_counter()
        llm.generate(prompts, params, use_tqdm=False)
        if number >= options.num_iters_warmup:
            seconds.append(time.perf_counter() - start)
    return seconds


def _show(figures: dict[str, Any]) -> None:
    print(f"average latency {figures['avg_latency']:.4f} s")
    for name, value in figures["percentiles"].items():
        print(f"  {name} % within {value:.4f} s")
