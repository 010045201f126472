"""GraphRunner implementations: eager execution and, on CUDA, captured graphs."""

from __future__ import annotations

import bisect
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from octavo.platforms.interface import Platform
from octavo.sampling.interface import Variant
from octavo.sampling.token_masks import TokenMasks
from octavo.utils.logging import get_logger
from octavo.utils.profiling import HostSpans
from octavo.worker.device_step import DeviceStep
from octavo.worker.input_batch import InputBatch, LaunchedStep
from octavo.worker.step import StepPlan, StepResult, StepShape

logger = get_logger(__name__)

_MIXED_MEETINGS = 4


class EagerRunner:
    """Queues every kernel anew; shapes are exact."""

    def __init__(self, step: DeviceStep) -> None:
        self._step = step

    def run(self, plan: StepPlan) -> StepResult:
        """See GraphRunner."""
        head = self._step.head
        variant = head.variant(plan)
        self._step.inputs.upload(plan, plan.shape)
        result = self._step.finish(*self._step.forward(plan, plan.shape), variant)
        head.account(plan, variant)
        return result

    def launch(self, plan: StepPlan) -> LaunchedStep:
        """See GraphRunner."""
        self._step.inputs.upload(plan, plan.shape)
        return LaunchedStep(*self._step.forward(plan, plan.shape))

    def finish(self, launched: LaunchedStep, masks: TokenMasks | None) -> StepResult:
        """See GraphRunner."""
        return self._step.finish(launched.batch, launched.hidden, Variant.HOST, masks)

    def prepare(self) -> None:
        """See GraphRunner."""
        self._step.warm_up()

    def watch(self, spans: HostSpans) -> None:
        """See GraphRunner."""
        self._step.watch(spans)


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
    binding: object  # see Head


class CudaGraphRunner:
    """Replays a captured graph where the step's shape has one; runs the others eagerly.

    The graph of a plain decode step holds everything from the input tensors to the committed
    tokens, unless some row's sampling needs the host; other graphs end with the hidden states. So
    a shape has a graph per variant of sampling that it is met with. A graph is captured between
    two steps: a plain decode one when its shape and variant are first met, or when tables that it
    reads have moved, for steps like it follow; another when its shape keeps coming back.
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
        self._captured: dict[tuple[StepShape, Variant], _Captured] = {}
        self._met: Counter[StepShape] = Counter()  # mixed shapes without a graph yet

    def run(self, plan: StepPlan) -> StepResult:
        """See GraphRunner."""
        head = self._step.head
        wanted = head.variant(plan)
        captured = self._replay(plan, wanted if plan.plain_decode else Variant.HOST)
        if captured is None:
            return self._eager.run(plan)
        result = captured.result
        if result is None:
            batch = _real_samples(captured.batch, plan)
            result = self._step.finish(batch, captured.hidden, wanted)
        head.account(plan, wanted)
        return result

    def launch(self, plan: StepPlan) -> LaunchedStep:
        """See GraphRunner."""
        captured = self._replay(plan, Variant.HOST)
        if captured is None:
            return self._eager.launch(plan)
        return LaunchedStep(_real_samples(captured.batch, plan), captured.hidden)

    def finish(self, launched: LaunchedStep, masks: TokenMasks | None) -> StepResult:
        """See GraphRunner."""
        return self._eager.finish(launched, masks)

    def _replay(self, plan: StepPlan, variant: Variant) -> _Captured | None:
        """The graph for a step, replayed; None if it is to run eagerly."""
        shape = self._shape(plan)
        if shape is None or self._step.shows_layers(plan):
            return None
        captured = self._captured.get((shape, variant))
        if captured is None or captured.binding is not self._step.head.binding(variant):
            if not plan.plain_decode:
                self._met[shape] += 1
                if self._met[shape] < _MIXED_MEETINGS:
                    return None
            captured = self._capture(shape, variant)
        # The results of the step before are still being copied from the tensors a replay writes.
        self._platform.wait_for_copies()
        self._step.inputs.upload(plan, shape)
        captured.graph.replay()
        return captured

    def prepare(self) -> None:
        """Warm up, then capture the sizes wanted at start: the largest first, for the pool."""
        self._step.warm_up()
        began = time.monotonic()
        for rows in sorted(self._sizes.at_start, reverse=True):
            self._capture(StepShape(rows, rows, rows), Variant.GREEDY)
        count, seconds = len(self._sizes.at_start), time.monotonic() - began
        logger.info("captured %d CUDA graphs in %.1f s", count, seconds)

    def watch(self, spans: HostSpans) -> None:
        """See GraphRunner."""
        self._step.watch(spans)

    def _shape(self, plan: StepPlan) -> StepShape | None:
        if plan.plain_decode:
            rows = self._sizes.decode(plan.num_rows)
            return None if rows is None else StepShape(rows, rows, rows)
        mixed = self._sizes.mixed(plan.num_rows, plan.num_tokens)
        return None if mixed is None else StepShape(*mixed, mixed[0])

    def _capture(self, shape: StepShape, variant: Variant) -> _Captured:
        began = time.monotonic()
        plan = StepPlan.padding(shape.rows, shape.tokens, self._max_seq_len)
        self._step.inputs.upload(plan, shape)
        # The first run compiles kernels and fills caches, which must not happen while capturing.
        self._run(plan, shape, variant)
        self._platform.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            batch, hidden, result = self._run(plan, shape, variant)
        binding = self._step.head.binding(variant)
        captured = _Captured(graph, batch, hidden, result, binding)
        self._captured[shape, variant] = captured
        logger.debug("captured %s, %s, in %.2f s", shape, variant.name, time.monotonic() - began)
        return captured

    def _run(
        self, plan: StepPlan, shape: StepShape, variant: Variant
    ) -> tuple[InputBatch, torch.Tensor, StepResult | None]:
        batch, hidden = self._step.forward(plan, shape)
        if variant is Variant.HOST:
            return batch, hidden, None
        return batch, hidden, self._step.finish(batch, hidden, variant)


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
