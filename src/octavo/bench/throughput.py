"""`octavo bench throughput`: tokens per second of many requests given at once."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from octavo.bench.offline import OfflineOptions, RandomPrompts, run
from octavo.config.options import option
from octavo.entrypoints.llm import LLM
from octavo.types.sampling_params import SamplingParams


@dataclass(frozen=True, kw_only=True)
class ThroughputOptions(OfflineOptions):
    """How many requests of which shape."""

    num_prompts: int = option(1000, "Requests.", low=1, high=10**6)
    random_range_ratio: float = option(
        0.0, "Spread of both lengths: 0.2 draws from 80 to 120 percent.", low=0.0, high=1.0
    )
    n: int = option(1, "Answers per prompt.", low=1, high=16384)


def main(argv: Sequence[str]) -> int:
    """Run the benchmark."""
    command = ("octavo bench throughput", "Measure the engine's throughput.")
    return run(argv, ThroughputOptions, command, measure, _show)


def measure(llm: LLM, options: ThroughputOptions) -> dict[str, Any]:
    """The figures of one run over all requests."""
    rng = random.Random(0)
    prompts = RandomPrompts.of(llm).make(_lengths(options.input_len, options, rng), rng)
    params = [
        SamplingParams(n=options.n, temperature=1.0, ignore_eos=True, max_tokens=max(1, length))
        for length in _lengths(options.output_len, options, rng)
    ]
    start = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=not options.disable_tqdm)
    elapsed = time.perf_counter() - start
    num_output = sum(len(answer.token_ids) for output in outputs for answer in output.outputs)
    num_input = sum(len(output.prompt_token_ids) for output in outputs)
    return {
        "elapsed_time": elapsed,
        "num_requests": len(outputs),
        "total_num_tokens": num_input + num_output,
        "requests_per_second": len(outputs) / elapsed,
        "tokens_per_second": (num_input + num_output) / elapsed,
        "output_tokens_per_second": num_output / elapsed,
    }


def _lengths(middle: int, options: ThroughputOptions, rng: random.Random) -> list[int]:
    spread = options.random_range_ratio
    low, high = round(middle * (1 - spread)), round(middle * (1 + spread))
    return [max(1, rng.randint(low, high)) for _ in range(options.num_prompts)]


def _show(figures: dict[str, Any]) -> None:
    print(
        f"{figures['requests_per_second']:.2f} requests/s, "
        f"{figures['tokens_per_second']:.1f} tokens/s, "
        f"{figures['output_tokens_per_second']:.1f} output tokens/s"
    )
