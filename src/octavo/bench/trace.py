"""`octavo bench trace`: a Perfetto trace of real steps, with its kernels and gaps in numbers."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from octavo.bench.offline import RandomPrompts, parse
from octavo.bench.report import save
from octavo.bench.trace_steps import TracedStep, sort_into_steps
from octavo.bench.trace_tables import (
    kernel_table,
    print_figures,
    print_kernels,
    step_figures,
)
from octavo.config.engine_args import EngineArgs
from octavo.config.options import option
from octavo.engine.llm_engine import LLMEngine
from octavo.types.errors import ConfigError, OctavoError
from octavo.types.sampling_params import RequestOutputKind, SamplingParams
from octavo.utils.chrome_trace import ChromeTrace

_KINDS = ("decode", "mixed", "prefill")
_SLACK = 16  # decode tokens for steps that run while the trace is started and stopped
_MIN_EDGE = 2  # traced steps at either end that are left out of the figures


@dataclass(frozen=True, kw_only=True)
class TraceOptions:
    """What to run while the trace is recorded."""

    case: Literal["decode", "prefill", "mixed"] = option(
        "decode",
        "decode: --batch rows decode. prefill: --batch prompts at once, again and again. mixed: "
        "rows decode while one prompt of --arriving-len after the other arrives.",
    )
    batch: int = option(1, "Requests at once.", low=1, high=10**5)
    input_len: int = option(256, "Tokens of each prompt.", low=1, high=10**7)
    arriving_len: int = option(1024, "Tokens of a prompt that arrives.", low=1, high=10**7)
    num_steps: int | None = option(
        None, "Decode steps, or times the prompts are sent, to record; by default 30, or 3.",
        low=1, high=10**5,
    )  # fmt: skip
    top: int = option(25, "Kernels to list; the rest is one line.", low=1, high=10**4)
    output_dir: str = option(".", "Folder of the trace.")
    output_json: str | None = option(None, "File for the figures.")


def main(argv: Sequence[str]) -> int:
    """Record, then print the tables."""
    engine_values, options = parse(
        argv, TraceOptions, "octavo bench trace", "Record a Perfetto trace of the engine's steps."
    )
    args = EngineArgs.from_dict({"disable_log_stats": True, **engine_values})
    engine = LLMEngine.from_engine_args(args)
    try:
        path, untraced_ms = record(engine, options)
        model = engine.config.model.served_model_name[0]
    finally:
        engine.shutdown()
    steps = sort_into_steps(ChromeTrace.load(path).events)
    if not steps:
        raise OctavoError(f"{path} holds no complete step with work of the device")
    figures = _print(steps, options, untraced_ms)
    print(f"the trace is in {path}; open it at ui.perfetto.dev")
    if options.output_json is not None:
        content = {"model_id": model, **vars(options), "trace": str(path), **figures}
        save(content, Path(options.output_json))
    return 0


def record(engine: LLMEngine, options: TraceOptions) -> tuple[Path, float]:
    """(the trace's file, median milliseconds of the same work without it)."""
    work = _Work(engine, options)
    turns = work.prefills() if options.case == "prefill" else work.decodes()
    next(turns)  # compiles kernels, captures graphs
    untraced = [next(turns) for _ in range(work.num_steps)]
    engine.start_profile()
    for _ in range(work.num_steps + (2 * _MIN_EDGE if options.case != "prefill" else 0)):
        next(turns)
    path = Path(engine.stop_profile(options.output_dir))
    work.end()
    return path, 1e3 * statistics.median(untraced)


class _Work:
    """Drives an engine; each turn of its iterators gives the seconds that the turn took."""

    def __init__(self, engine: LLMEngine, options: TraceOptions) -> None:
        self._engine = engine
        self._options = options
        self._prompts = RandomPrompts(engine.config.model, engine.tokenizer)
        self._rng = random.Random(0)
        self._count = 0
        self._live: set[str] = set()
        self.num_steps = options.num_steps or (3 if options.case == "prefill" else 30)
        limit = engine.config.scheduler.max_num_seqs
        if options.batch > limit:
            raise ConfigError(
                f"batch={options.batch} is more than max_num_seqs={limit}; raise --max-num-seqs"
            )

    def prefills(self) -> Iterator[float]:
        """Send the prompts, wait for their first tokens, and again."""
        while True:
            began = time.perf_counter()
            self._add(self._options.batch, self._options.input_len, 1)
            while self._engine.has_unfinished_requests():
                self._engine.step()
            yield time.perf_counter() - began

    def decodes(self) -> Iterator[float]:
        """The first turn ends when every request decodes; then each is one step's outputs."""
        options = self._options
        # The core may be ahead of the outputs that are counted here.
        wanted = self._add(options.batch, options.input_len, 4 * self.num_steps + 6 * _SLACK)
        began = time.perf_counter()
        seen: set[str] = set()
        while seen < wanted:
            seen |= {output.request_id for output in self._engine.step()}
        for _ in range(_SLACK):
            self._engine.step()
        yield time.perf_counter() - began
        arriving: set[str] = set()
        while True:
            began = time.perf_counter()
            if options.case == "mixed" and not arriving:
                arriving = self._add(1, options.arriving_len, 1)
            arriving -= {output.request_id for output in self._engine.step()}
            yield time.perf_counter() - began

    def end(self) -> None:
        """Abort what still runs."""
        self._engine.abort_requests(sorted(self._live))

    def _add(self, count: int, input_len: int, output_len: int) -> set[str]:
        prompts = self._prompts.make([input_len] * count, self._rng)
        limit = self._engine.config.model.max_model_len
        if input_len + output_len > limit:
            raise ConfigError(
                f"input_len={input_len} and {output_len} tokens to produce exceed max_model_len="
                f"{limit}; ask for shorter prompts or fewer steps"
            )
        params = SamplingParams(
            temperature=0.0,
            ignore_eos=True,
            max_tokens=output_len,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        added = set()
        for prompt in prompts:
            request_id = f"trace-{self._count}"
            self._count += 1
            self._engine.add_request(request_id, prompt, params)
            added.add(request_id)
        self._live |= added
        return added


def _print(
    steps: Sequence[TracedStep], options: TraceOptions, untraced_ms: float
) -> dict[str, Any]:
    edge = _MIN_EDGE if options.case != "prefill" and len(steps) > 3 * _MIN_EDGE else 0
    kept = steps[edge : len(steps) - edge]
    what = "a batch of prompts" if options.case == "prefill" else "a step"
    print(f"without the trace, {what} took {untraced_ms:.3f} ms (median)\n")
    result: dict[str, Any] = {"untraced_ms": untraced_ms, "steps": {}, "kernels": {}}
    for kind in _KINDS:
        own = [step for step in kept if step.kind == kind]
        if not own:
            continue
        table = kernel_table(own)
        print(f"{kind} steps ({len(own)})")
        print_kernels(table, options.top)
        result["kernels"][kind] = [vars(row) for row in table]
        figures = step_figures(kept, kind)
        if figures is not None:
            print_figures(figures)
            result["steps"][kind] = figures.as_dict()
        print()
    return result
