"""GPUModelRunner: a step from plan to results, over parts it was given."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from octavo.platforms.interface import Platform
from octavo.sampling.token_masks import TokenMasks
from octavo.types.scheduler_output import GrammarMasks, SchedulerOutput
from octavo.utils.profiling import HostSpans
from octavo.worker.block_tables import BlockTables
from octavo.worker.input_batch import LaunchedStep
from octavo.worker.output import AsyncOutput, LateOutput
from octavo.worker.parts import GraphRunner, SlotState
from octavo.worker.request_table import RequestTable
from octavo.worker.step import StepPlan


class GPUModelRunner:
    """Runs steps. The device may be a GPU or the CPU: only the parts know."""

    def __init__(
        self,
        table: RequestTable,
        block_tables: BlockTables,
        slot_states: Sequence[SlotState],
        graphs: GraphRunner,
        platform: Platform,
    ) -> None:
        self._table = table
        self._block_tables = block_tables
        self._slot_states = slot_states
        self._graphs = graphs
        self._platform = platform
        self._waiting: tuple[LaunchedStep, LateOutput] | None = None

    @torch.inference_mode()
    def execute_model(self, plan: StepPlan) -> AsyncOutput | LateOutput:
        """Queue one step and return at once; its results come when the device is done.

        A step with grammar rows is queued up to its hidden states: `sample_tokens` must follow.
        """
        self._update_slots(plan.work)
        if not plan.work.grammar_rows:
            return AsyncOutput(plan, self._graphs.run(plan), self._platform)
        output = LateOutput()
        self._waiting = self._graphs.launch(plan), output
        return output

    @torch.inference_mode()
    def sample_tokens(self, masks: GrammarMasks) -> None:
        """Queue the sampling of the step that waits for its masks."""
        assert self._waiting is not None, "no step waits for masks"
        (launched, output), self._waiting = self._waiting, None
        plan = launched.batch.plan
        result = self._graphs.finish(launched, self._upload(plan, masks))
        output.sampled = AsyncOutput(plan, result, self._platform)

    def _upload(self, plan: StepPlan, masks: GrammarMasks) -> TokenMasks | None:
        if not masks.rows:
            return None
        place = {row: index for index, row in enumerate(plan.sample_rows)}
        index = torch.tensor([place[row] for row in masks.rows])
        return TokenMasks(self._to_device(index), self._to_device(torch.from_numpy(masks.masks)))

    def _to_device(self, values: torch.Tensor) -> torch.Tensor:
        host = self._platform.host_buffer(tuple(values.shape), values.dtype).copy_(values)
        return host.to(self._platform.device, non_blocking=True)

    @torch.inference_mode()
    def prepare(self) -> None:
        """Warm up and capture graphs; once, in the thread that runs the steps."""
        self._graphs.prepare()

    def release(self, slots: Sequence[int]) -> None:
        """Forget the requests of slots whose steps were only made up."""
        for slot in slots:
            self._table.remove(slot)
            for state in self._slot_states:
                state.remove(slot)

    def watch(self, spans: HostSpans) -> None:
        """Have the host's parts of every step recorded."""
        spans.watch(self, "_update_slots", "update slots")
        self._graphs.watch(spans)

    def _update_slots(self, work: SchedulerOutput) -> None:
        self.release(work.freed_slots)
        for new in work.new_requests:
            self._table.add(new)
            self._block_tables.add(new)
            for state in self._slot_states:
                state.add(new.slot, new)
        for blocks in work.new_blocks:
            self._block_tables.append(blocks)
        for state in self._slot_states:
            state.flush()
