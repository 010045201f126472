"""GraphRunner implementations: eager execution and, on CUDA, captured graphs."""

from __future__ import annotations

import bisect
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from octavo.platforms.interface import Platform
from octavo.utils.logging import get_logger
from octavo.worker.device_step import DeviceStep
from octavo.worker.input_batch import InputBatch
from octavo.worker.step import StepPlan, StepResult, StepShape

logger = get_logger(__name__)

_MIXED_MEETINGS = 4


class EagerRunner:
    """Queues every kernel anew; shapes are exact."""

    def __init__(self, step: DeviceStep) -> None:
        self._step = step

    def run(self, plan: StepPlan) -> StepResult:
        """See GraphRunner."""
        self._step.inputs.upload(plan, plan.shape)
        return self._step.finish(*self._step.forward(plan, plan.shape))

    def prepare(self) -> None:
        """See GraphRunner."""
        self._step.warm_up()


@dataclass(frozen=True, slots=True)
class GraphSizes:
    """For which shapes graphs are kept; a step is padded to the next. All lists ascend."""

    decode_rows: Sequence[int]  # steps of one token per row
    mixed_rows: Sequence[int]  # other steps: rows,
    mixed_tokens: Sequence[int]  # and tokens
    at_start: Sequence[int]  # of decode_rows: captured before the first request

    def decode(self, num_rows: int) -> int | None:
        """Rows of the graph for a plain decode step."""
        return _at_least(self.decode_rows, num_rows)

    def mixed(self, num_rows: int, num_tokens: int) -> tuple[int, int] | None:
        """(rows, tokens) of the graph for another step; one row is for padding tokens."""
        rows = _at_least(self.mixed_rows, num_rows + 1)
        tokens = _at_least(self.mixed_tokens, max(num_tokens, 2 * (rows or 0)))
        return None if rows is None or tokens is None else (rows, tokens)


@dataclass(slots=True)
class _Captured:
    """A graph and the tensors that a replay fills."""

    graph: torch.cuda.CUDAGraph
    batch: InputBatch
    hidden: torch.Tensor
    result: StepResult | None  # None: the head runs after the graph


class CudaGraphRunner:
    """Replays a captured graph where the step's shape has one; runs the others eagerly.

    The graph of a plain decode step holds everything from the input tensors to the committed
    tokens, unless some row's sampling needs the host (`Head.device_only`); other graphs end with
    the hidden states. A graph is captured between two steps: a plain decode one when its shape is
    first met, for steps like it follow; another when its shape keeps coming back.
    """

    def __init__(
        self, step: DeviceStep, sizes: GraphSizes, max_seq_len: int, platform: Platform
    ) -> None:
        self._step = step
        self._eager = EagerRunner(step)
        self._sizes = sizes
        self._max_seq_len = max_seq_len
        self._platform = platform
        self._pool = torch.cuda.graph_pool_handle()
        self._captured: dict[tuple[StepShape, bool], _Captured] = {}
        self._met: Counter[StepShape] = Counter()  # mixed shapes without a graph yet

    def run(self, plan: StepPlan) -> StepResult:
        """See GraphRunner."""
        shape = self._shape(plan)
        if shape is None:
            return self._eager.run(plan)
        merged = plan.plain_decode and self._step.head.device_only(plan)
        captured = self._captured.get((shape, merged))
        if captured is None:
            if not plan.plain_decode:
                self._met[shape] += 1
                if self._met[shape] < _MIXED_MEETINGS:
                    return self._eager.run(plan)
            captured = self._capture(shape, merged)
        # The results of the step before are still being copied from the tensors a replay writes.
        self._platform.wait_for_copies()
        self._step.inputs.upload(plan, shape)
        captured.graph.replay()
        if captured.result is not None:
            return captured.result
        return self._step.finish(_real_samples(captured.batch, plan), captured.hidden)

    def prepare(self) -> None:
        """Warm up, then capture the sizes wanted at start: the largest first, for the pool."""
        self._step.warm_up()
        began = time.monotonic()
        for rows in sorted(self._sizes.at_start, reverse=True):
            self._capture(StepShape(rows, rows, rows), merged=True)
        count, seconds = len(self._sizes.at_start), time.monotonic() - began
        logger.info("captured %d CUDA graphs in %.1f s", count, seconds)

    def _shape(self, plan: StepPlan) -> StepShape | None:
        if plan.plain_decode:
            rows = self._sizes.decode(plan.num_rows)
            return None if rows is None else StepShape(rows, rows, rows)
        mixed = self._sizes.mixed(plan.num_rows, plan.num_tokens)
        return None if mixed is None else StepShape(*mixed, mixed[0])

    def _capture(self, shape: StepShape, merged: bool) -> _Captured:
        began = time.monotonic()
        plan = StepPlan.padding(shape.rows, shape.tokens, self._max_seq_len)
        self._step.inputs.upload(plan, shape)
        # The first run compiles kernels and fills caches, which must not happen while capturing.
        self._run(plan, shape, merged)
        self._platform.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            batch, hidden, result = self._run(plan, shape, merged)
        captured = _Captured(graph, batch, hidden, result)
        self._captured[shape, merged] = captured
        logger.debug("captured %s, merged=%s, in %.2f s", shape, merged, time.monotonic() - began)
        return captured

    def _run(
        self, plan: StepPlan, shape: StepShape, merged: bool
    ) -> tuple[InputBatch, torch.Tensor, StepResult | None]:
        batch, hidden = self._step.forward(plan, shape)
        return batch, hidden, self._step.finish(batch, hidden) if merged else None


def _real_samples(batch: InputBatch, plan: StepPlan) -> InputBatch:
    """A captured batch as the batch of `plan`, without padding samples."""
    count = len(plan.sample_rows)
    return replace(
        batch,
        plan=plan,
        sample_index=batch.sample_index[:count],
        logits_index=batch.logits_index[:count],
    )


def _at_least(sizes: Sequence[int], value: int) -> int | None:
    index = bisect.bisect_left(sizes, value)
    return sizes[index] if index < len(sizes) else None
