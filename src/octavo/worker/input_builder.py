"""InputBuilder: turn a StepPlan into an InputBatch, gathering by slot on the device."""

from __future__ import annotations

import numpy as np
import torch

from octavo.attention.interface import SharedPrefixRows
from octavo.kernels.input_kernels import InputKernels
from octavo.platforms.interface import Platform
from octavo.types.scheduler_output import SharedPrefix
from octavo.worker.block_tables import BlockTables
from octavo.worker.device_state import DeviceState
from octavo.worker.input_batch import InputBatch, InputBuffers
from octavo.worker.request_table import RequestTable
from octavo.worker.step import Int32Array, StepPlan, StepShape


class InputBuilder:
    """Builds every step's inputs in one shape: decode, prefill and verification rows alike.

    `upload` is the host's part (at most two small copies), `tensors` the device's, which a graph
    can record because it reads nothing but buffers that stay where they are.
    """

    def __init__(
        self,
        table: RequestTable,
        block_tables: BlockTables,
        state: DeviceState,
        buffers: InputBuffers,
        kernels: InputKernels,
        platform: Platform,
    ) -> None:
        self._table = table
        self._block_tables = block_tables
        self._state = state
        self._buffers = buffers
        self._kernels = kernels
        self._platform = platform
        self._uploaded: tuple[list[int], list[SharedPrefix], StepShape] | None = None

    def upload(self, plan: StepPlan, shape: StepShape) -> None:
        """Bring the staged changes of the slots and the plan's rows, padded to `shape`."""
        if self._state.num_staged:
            indices, values = self._state.take_staged()
            host = self._platform.host_buffer((2, len(indices)), torch.int32)
            host.numpy()[:] = indices, values
            pairs = host.to(self._platform.device, non_blocking=True)
            self._kernels.staged_write(self._state.data, pairs[0], pairs[1])
        # A plain decode step is described by its slots and what they share: when the step before
        # had the same ones, everything is on the device already.
        work = plan.work
        described = (list(work.slots), work.shared_prefixes, shape) if plan.plain_decode else None
        if described is not None and described == self._uploaded:
            return
        self._uploaded = described
        self._write_rows(plan, shape)

    def tensors(self, plan: StepPlan, shape: StepShape) -> InputBatch:
        """The step's tensors, padded to `shape`."""
        view = self._buffers.view
        slots = view("slots", shape.rows)
        query_start_loc = view("query_start_loc", shape.rows + 1)
        token_row = view("token_row", shape.tokens)
        input_ids, positions, seq_lens = self._kernels.token_inputs(
            view("host_ids", shape.tokens),
            token_row,
            query_start_loc,
            slots,
            self._table.last_token,
            self._table.num_computed,
        )
        tables = self._block_tables
        return InputBatch(
            plan=plan,
            slots=slots,
            query_start_loc=query_start_loc,
            seq_lens=seq_lens,
            shared_prefixes=SharedPrefixRows(
                view("shared_first_rows", shape.rows), view("shared_num_tokens", shape.rows)
            ),
            input_ids=input_ids,
            positions=positions,
            slot_mappings=[
                self._kernels.slot_mapping(positions, token_row, slots, table, block_size)
                for table, block_size in zip(tables.tables, tables.block_sizes, strict=True)
            ],
            sample_index=view("sample_rows", shape.samples),
            logits_index=view("logits_index", shape.samples),
        )

    def commit(self, batch: InputBatch, token_ids: torch.Tensor) -> None:
        """Advance the slots to where the next step finds them; token_ids[S] int64 are new."""
        self._kernels.commit(
            batch.slots,
            batch.query_start_loc,
            batch.sample_index,
            token_ids,
            self._table.last_token,
            self._table.num_computed,
        )

    def _write_rows(self, plan: StepPlan, shape: StepShape) -> None:
        """Padding rows come after the others and have no tokens in query_start_loc.

        Padding tokens belong to the first padding row, padding samples to one each.
        """
        buffers = self._buffers
        buffers.begin()
        num_rows, num_samples = plan.num_rows, len(plan.sample_rows)
        more_rows = shape.rows - num_rows
        more_tokens = shape.tokens - plan.num_tokens
        more_samples = shape.samples - num_samples
        starts = plan.query_start_loc[: num_rows + 1]
        ends = starts[1:][plan.sample_rows] - 1
        token_row = np.repeat(np.arange(num_rows, dtype=np.int32), np.diff(starts))
        buffers.put("slots", plan.work.slots + [self._table.num_slots] * more_rows)
        buffers.put("query_start_loc", np.pad(starts, (0, more_rows), mode="edge"))
        padding = np.arange(num_samples, num_samples + more_samples, dtype=np.int32)
        buffers.put("sample_rows", np.concatenate([plan.sample_rows, padding]))
        buffers.put("logits_index", np.concatenate([ends, padding]))
        shared = np.zeros((2, shape.rows), dtype=np.int32)
        for prefix in plan.work.shared_prefixes:
            rows = slice(prefix.first_row, prefix.first_row + prefix.num_rows)
            shared[0, rows] = prefix.first_row
            shared[1, rows] = prefix.num_tokens
        buffers.put("shared_first_rows", shared[0])
        buffers.put("shared_num_tokens", shared[1])
        extra = (0, more_tokens)
        buffers.put("host_ids", np.pad(self._host_ids(plan), extra, constant_values=-1))
        buffers.put("token_row", np.pad(token_row, extra, constant_values=num_rows))
        buffers.upload(shape.tokens)

    def _host_ids(self, plan: StepPlan) -> Int32Array:
        work, starts = plan.work, plan.query_start_loc
        ids = np.full(plan.num_tokens, -1, dtype=np.int32)
        for row, drafts in work.draft_token_ids.items():
            ids[starts[row] + 1 : starts[row + 1]] = drafts
        for row, forced in work.forced_token_ids.items():
            ids[starts[row] : starts[row + 1]] = forced
        for row in range(work.num_decode_rows, plan.num_rows):
            first = work.num_computed_tokens[row]
            tokens = self._table.request(work.slots[row]).token_ids
            ids[starts[row] : starts[row + 1]] = tokens[
                first : first + work.num_scheduled_tokens[row]
            ]
        return ids
