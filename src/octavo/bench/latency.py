"""`octavo bench latency`: the time of one batch, repeated."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from octavo.bench.offline import parse, random_prompts
from octavo.bench.report import save
from octavo.config.options import option
from octavo.entrypoints.llm import LLM
from octavo.types.sampling_params import SamplingParams

_PERCENTILES = (10, 25, 50, 75, 90, 99)


@dataclass(frozen=True, kw_only=True)
class LatencyOptions:
    """Shape of the batch."""

    input_len: int = option(32, "Tokens of each prompt.", low=1, high=10**7)
    output_len: int = option(128, "Tokens of each answer.", low=1, high=10**7)
    batch_size: int = option(8, "Requests in the batch.", low=1, high=10**5)
    num_iters_warmup: int = option(3, "Batches run before, not measured.", low=0, high=10**4)
    num_iters: int = option(10, "Batches measured.", low=1, high=10**5)
    output_json: str | None = option(None, "File for the figures.")
    disable_tqdm: bool = option(False, "Show no progress.")


def main(argv: Sequence[str]) -> int:
    """Run the benchmark."""
    engine, options = parse(
        argv, LatencyOptions, "octavo bench latency", "Measure the time of one batch."
    )
    llm = LLM(**engine)
    try:
        seconds = measure(llm, options)
    finally:
        llm.shutdown()
    figures = {"avg_latency": float(np.mean(seconds)), "latencies": seconds}
    percentiles = {str(p): float(np.percentile(seconds, p)) for p in _PERCENTILES}
    print(f"average latency {figures['avg_latency']:.4f} s")
    for name, value in percentiles.items():
        print(f"  {name} % within {value:.4f} s")
    if options.output_json is not None:
        model = llm.config.model.served_model_name[0]
        content = {"model_id": model, **vars(options), **figures, "percentiles": percentiles}
        save(content, Path(options.output_json))
    return 0


def measure(llm: LLM, options: LatencyOptions) -> list[float]:
    """Seconds of each measured batch; every batch has prompts of its own."""
    params = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=options.output_len)
    rng = random.Random(0)
    lengths = [options.input_len] * options.batch_size
    seconds = []
    total = options.num_iters_warmup + options.num_iters
    for number in tqdm(range(total), desc="batches", disable=options.disable_tqdm):
        prompts = random_prompts(llm, lengths, rng)
        start = time.perf_counter()
        llm.generate(prompts, params, use_tqdm=False)
        if number >= options.num_iters_warmup:
            seconds.append(time.perf_counter() - start)
    return seconds
