"""Run a workload through LLM in some combination of features."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from combos.answers import Answer
from combos.requests import MAX_MODEL_LEN, Work
from octavo import LLM

# Two requests of MAX_MODEL_LEN and the null block: of those that run at once, some are put back.
FEW_BLOCKS = 18


@dataclass(frozen=True)
class Mix:
    """One combination."""

    chunk: int | None = 256  # most tokens of a step; None: prompts are not cut
    prefix_cache: bool = True
    few_blocks: bool = False  # a KV cache so small that requests are preempted
    steps_in_flight: int = 2

    def __str__(self) -> str:
        return "-".join(
            [
                f"chunk{self.chunk}" if self.chunk else "unchunked",
                "prefix" if self.prefix_cache else "noprefix",
                "tiny" if self.few_blocks else "roomy",
                f"{self.steps_in_flight}step",
            ]
        )

    def options(self, few_blocks: int | None = None) -> dict:
        """The engine's arguments; `few_blocks` is the size of a small cache."""
        options = {
            "max_num_batched_tokens": self.chunk or 256,
            "enable_chunked_prefill": self.chunk is not None,
            "enable_prefix_caching": self.prefix_cache,
            "async_scheduling": self.steps_in_flight == 2,
            "num_gpu_blocks_override": (few_blocks or FEW_BLOCKS) if self.few_blocks else 600,
        }
        return options | {"max_num_seqs": 16, "max_model_len": MAX_MODEL_LEN}


@dataclass
class Run:
    """What an engine made of a workload."""

    answers: list[Answer]
    num_preemptions: int
    num_prefix_hits: int  # tokens


def start(folder: Path, *, own_process: bool = False, **options) -> LLM:
    """An engine of the tiny model that counts what it does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "1" if own_process else "0")
        return LLM(str(folder), **({"disable_log_stats": False, "device": "cpu"} | options))


def serve(llm: LLM, works: list[Work]) -> Run:
    """Run all requests at once."""
    before = _counters(llm)
    outputs = llm.generate(
        [work.prompt for work in works], [work.params for work in works], use_tqdm=False
    )
    after = _counters(llm)
    answers = [Answer.of(work.name, output) for work, output in zip(works, outputs, strict=True)]
    return Run(answers, *(new - old for new, old in zip(after, before, strict=True)))


def run(folder: Path, works: list[Work], *, own_process: bool = False, **options) -> Run:
    """Start an engine, serve, end it."""
    llm = start(folder, own_process=own_process, **options)
    try:
        return serve(llm, works)
    finally:
        llm.shutdown()


def _counters(llm: LLM) -> tuple[int, int]:
    values = {metric.name: metric for metric in llm.get_metrics()}
    return tuple(
        values[f"octavo:{name}"].value for name in ("num_preemptions", "prefix_cache_hits")
    )
