"""GraphRunner implementations: eager execution and, on CUDA, captured graphs."""

from __future__ import annotations

import bisect
import time
from dataclasses import dataclass, replace

import torch

from octavo.platforms.interface import Platform
from octavo.utils.logging import get_logger
from octavo.worker.device_step import DeviceStep
from octavo.worker.input_batch import InputBatch
from octavo.worker.step import StepPlan, StepResult

logger = get_logger(__name__)


class EagerRunner:
    """Queues every kernel anew; shapes are exact."""

    def __init__(self, step: DeviceStep) -> None:
        self._step = step

    def run(self, plan: StepPlan) -> StepResult:
        """See GraphRunner."""
        self._step.inputs.upload(plan, plan.num_rows)
        batch, hidden = self._step.forward(
            plan, plan.num_rows, plan.num_tokens, len(plan.sample_rows)
        )
        return self._step.finish(batch, hidden)

    def capture(self) -> None:
        """Nothing to prepare."""


@dataclass(slots=True)
class _Captured:
    """A graph and the tensors that a replay fills."""

    graph: torch.cuda.CUDAGraph
    batch: InputBatch
    hidden: torch.Tensor
    result: StepResult | None  # None: the head runs after the graph


class CudaGraphRunner:
    """Replays plain decode steps of up to the largest size; runs the others eagerly.

    A graph holds the whole device part of a step. When some row's sampling needs the host
    (`Head.device_only`), a second graph without the head is used. The sizes `at_start` are captured
    before the first request, others when they are first met, between two steps.
    """

    def __init__(
        self, step: DeviceStep, sizes: list[int], at_start: list[int], max_seq_len: int,
        platform: Platform,
    ) -> None:  # fmt: skip
        self._step = step
        self._eager = EagerRunner(step)
        self._sizes = sorted(sizes)
        self._at_start = at_start
        self._max_seq_len = max_seq_len
        self._platform = platform
        self._pool = torch.cuda.graph_pool_handle()
        self._captured: dict[tuple[int, bool], _Captured] = {}

    def run(self, plan: StepPlan) -> StepResult:
        """See GraphRunner."""
        if not plan.plain_decode or plan.num_rows > self._sizes[-1]:
            return self._eager.run(plan)
        size = self._sizes[bisect.bisect_left(self._sizes, plan.num_rows)]
        merged = self._step.head.device_only(plan)
        captured = self._captured.get((size, merged))
        if captured is None:
            captured = self._capture(size, merged)
        # The results of the step before are still being copied from the tensors a replay writes.
        self._platform.wait_for_copies()
        self._step.inputs.upload(plan, size)
        captured.graph.replay()
        if captured.result is not None:
            return captured.result
        return self._step.finish(replace(captured.batch, plan=plan), captured.hidden)

    def capture(self) -> None:
        """Capture the sizes wanted at start, largest first so that the pool fits all."""
        began = time.monotonic()
        for size in sorted(self._at_start, reverse=True):
            self._capture(size, merged=True)
        logger.info(
            "captured %d CUDA graphs in %.1f s", len(self._at_start), time.monotonic() - began
        )

    def _capture(self, size: int, merged: bool) -> _Captured:
        plan = StepPlan.padding(size, self._max_seq_len)
        self._step.inputs.upload(plan, size)
        # The first run compiles kernels and fills caches, which must not happen while capturing.
        self._run(plan, size, merged)
        self._platform.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            batch, hidden, result = self._run(plan, size, merged)
        captured = _Captured(graph, batch, hidden, result)
        self._captured[size, merged] = captured
        return captured

    def _run(
        self, plan: StepPlan, size: int, merged: bool
    ) -> tuple[InputBatch, torch.Tensor, StepResult | None]:
        batch, hidden = self._step.forward(plan, size, size, size)
        return batch, hidden, self._step.finish(batch, hidden) if merged else None
