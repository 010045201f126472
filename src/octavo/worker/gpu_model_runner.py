"""GPUModelRunner: a step from plan to results, over parts it was given."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from octavo.platforms.interface import Platform
from octavo.types.scheduler_output import SchedulerOutput
from octavo.worker.block_tables import BlockTables
from octavo.worker.output import AsyncOutput
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

    @torch.inference_mode()
    def execute_model(self, plan: StepPlan) -> AsyncOutput:
        """Queue one step and return at once; its results come when the device is done."""
        self._update_slots(plan.work)
        return AsyncOutput(plan, self._graphs.run(plan), self._platform)

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
