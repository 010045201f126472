"""Step inputs against numbers worked out by hand."""

import numpy as np
import pytest
import torch

from octavo.kernels.input_kernels import reference_input_kernels
from octavo.platforms.cpu import CpuPlatform
from octavo.types.kv_spec import FullAttentionSpec, KVCacheConfig, KVCacheGroup
from octavo.types.platform_info import PlatformInfo
from octavo.types.sampling_params import SamplingParams
from octavo.types.scheduler_output import (
    NewBlocks,
    NewRequestData,
    SchedulerOutput,
    SharedPrefix,
)
from octavo.worker.block_tables import BlockTables
from octavo.worker.device_state import DeviceState
from octavo.worker.input_batch import InputBuffers
from octavo.worker.input_builder import InputBuilder
from octavo.worker.request_table import RequestTable
from octavo.worker.step import StepPlan, StepShape

NUM_SLOTS, MAX_LEN, BLOCK = 4, 64, 16


class Rig:
    """The parts of the worker that inputs are made of."""

    def __init__(self):
        info = PlatformInfo("cpu", "test", 1 << 30, 1 << 30)
        platform = CpuPlatform(info)
        spec = FullAttentionSpec(BLOCK, 1, 8, "float32")
        config = KVCacheConfig(num_blocks=32, groups=(KVCacheGroup(("layer",), spec),))
        regions = RequestTable.regions(NUM_SLOTS)
        regions |= BlockTables.regions(config, NUM_SLOTS, MAX_LEN)
        state = DeviceState(regions, platform)
        self.table = RequestTable(NUM_SLOTS, state)
        self.blocks = BlockTables(config, NUM_SLOTS, MAX_LEN, state)
        self.buffers = InputBuffers(8, 64, 2, platform)
        self.builder = InputBuilder(
            self.table, self.blocks, state, self.buffers, reference_input_kernels(), platform
        )

    def add(self, slot, tokens, computed, block_ids):
        new = NewRequestData(
            slot=slot,
            request_id=str(slot),
            token_ids=tokens,
            num_prompt_tokens=len(tokens),
            num_computed_tokens=computed,
            block_ids=[block_ids],
            sampling_params=SamplingParams(),
            seed=0,
        )
        self.table.add(new)
        self.blocks.add(new)

    def build(self, pad_to=0, **work):
        work.setdefault("samples", [True] * len(work["slots"]))
        plan = StepPlan.of(SchedulerOutput(step_id=0, **work))
        padding = max(pad_to - plan.num_rows, 0)
        shape = StepShape(*(size + padding for size in plan.shape))
        self.builder.upload(plan, shape)
        return self.builder.tensors(plan, shape)

    def commit(self, batch, tokens):
        self.builder.commit(batch, torch.tensor(tokens))


@pytest.fixture
def rig():
    return Rig()


def start_two(rig):
    """Slot 2 with a 20-token prompt of which 16 are cached, slot 0 with one of 3."""
    rig.add(2, list(range(100, 120)), 16, [5, 7])
    rig.add(0, [11, 12, 13], 0, [9])
    return rig.build(
        slots=[2, 0], num_computed_tokens=[16, 0], num_scheduled_tokens=[4, 3], num_decode_rows=0
    )


def test_prefill_rows_take_their_tokens_from_the_host(rig):
    batch = start_two(rig)
    assert batch.input_ids.tolist() == [116, 117, 118, 119, 11, 12, 13]
    assert batch.positions.tolist() == [16, 17, 18, 19, 0, 1, 2]
    assert batch.slot_mappings[0].tolist() == [112, 113, 114, 115, 144, 145, 146]
    assert batch.seq_lens.tolist() == [20, 3]
    assert batch.query_start_loc.tolist() == [0, 4, 7]
    assert batch.logits_index.tolist() == [3, 6]


def test_decode_rows_follow_from_the_device_alone(rig):
    rig.commit(start_two(rig), [55, 66])
    work = {"slots": [2, 0], "num_scheduled_tokens": [1, 1], "num_decode_rows": 2}
    first = rig.build(num_computed_tokens=[20, 3], **work)
    assert first.input_ids.tolist() == [55, 66]
    assert first.positions.tolist() == [20, 3]
    rig.commit(first, [77, 88])
    # The next step has the same rows: whatever the host buffers hold must not be read again.
    for name in ("slots", "query_start_loc", "host_ids", "token_row"):
        rig.buffers.put(name, [63] * 3)
    second = rig.build(num_computed_tokens=[21, 4], **work)
    assert second.input_ids.tolist() == [77, 88]
    assert second.positions.tolist() == [21, 4]
    assert second.seq_lens.tolist() == [22, 5]
    assert second.all_sample


def test_mixed_step_with_a_chunk_that_does_not_sample(rig):
    rig.commit(start_two(rig), [55, 66])
    rig.add(1, list(range(30)), 0, [20, 21])
    batch = rig.build(
        slots=[0, 1],
        num_computed_tokens=[3, 0],
        num_scheduled_tokens=[1, 10],
        num_decode_rows=1,
        samples=[True, False],
    )
    assert batch.input_ids.tolist() == [66, *range(10)]
    assert batch.positions.tolist() == [3, *range(10)]
    assert batch.sample_index.tolist() == [0]
    rig.commit(batch, [99])
    assert rig.table.num_computed[:3].tolist() == [4, 10, 20]
    assert rig.table.last_token[0] == 99


def test_padding_touches_nothing(rig):
    rig.commit(start_two(rig), [55, 66])
    before = rig.table.num_computed.clone()
    batch = rig.build(
        pad_to=8,
        slots=[2],
        num_computed_tokens=[20],
        num_scheduled_tokens=[1],
        num_decode_rows=1,
    )
    assert batch.slots.tolist() == [2] + [NUM_SLOTS] * 7
    assert batch.query_start_loc.tolist() == [0] + [1] * 8
    assert batch.seq_lens.tolist() == [21] + [0] * 7
    assert batch.positions.tolist() == [20] + [0] * 7
    assert batch.slot_mappings[0][0] == 7 * BLOCK + 4
    assert (batch.slot_mappings[0][1:] < 0).all()
    rig.commit(batch, list(range(8)))
    before[2] += 1
    assert torch.equal(rig.table.num_computed, before)


def test_a_new_block_and_a_reused_slot(rig):
    rig.commit(start_two(rig), [55, 66])
    rig.blocks.append(NewBlocks(slot=0, group=0, start=1, block_ids=[13]))
    rig.table.remove(2)
    rig.add(2, [1, 2], 0, [30])
    batch = rig.build(
        slots=[0, 2], num_computed_tokens=[3, 0], num_scheduled_tokens=[1, 2], num_decode_rows=1
    )
    assert batch.slot_mappings[0].tolist() == [9 * BLOCK + 3, 30 * BLOCK, 30 * BLOCK + 1]
    table = rig.blocks.tables[0].numpy()
    assert np.array_equal(table[0, :2], [9, 13])


def test_drafts_follow_the_last_sampled_token(rig):
    rig.commit(start_two(rig), [55, 66])
    batch = rig.build(
        slots=[2, 0],
        num_computed_tokens=[20, 3],
        num_scheduled_tokens=[3, 1],
        num_decode_rows=2,
        draft_token_ids={0: [41, 42]},
    )
    assert batch.input_ids.tolist() == [55, 41, 42, 66]
    assert batch.positions.tolist() == [20, 21, 22, 3]


def test_shared_prefixes_are_told_row_by_row(rig):
    for slot in range(4):
        rig.add(slot, list(range(40)), 39, [1, 2, 10 + slot])
    work = {"slots": [3, 1, 0, 2], "num_scheduled_tokens": [1] * 4, "num_decode_rows": 4}

    def shared(prefixes, pad_to=0):
        batch = rig.build(
            pad_to, num_computed_tokens=[39] * 4, shared_prefixes=prefixes, **work
        ).shared_prefixes
        return batch.first_rows.tolist(), batch.num_tokens.tolist()

    two = [SharedPrefix(0, 2, 32), SharedPrefix(2, 2, 16)]
    assert shared(two) == ([0, 0, 2, 2], [32, 32, 16, 16])
    # The same rows in other groups are another step.
    assert shared([SharedPrefix(1, 3, 32)]) == ([0, 1, 1, 1], [0, 32, 32, 32])
    assert shared([], pad_to=6) == ([0] * 6, [0] * 6)
    assert shared(two, pad_to=6) == ([0, 0, 2, 2, 0, 0], [32, 32, 16, 16, 0, 0])
