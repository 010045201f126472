"""SchedulerOutput: the work of one step, as the scheduler tells it to the workers."""

from __future__ import annotations

import msgspec

from octavo.types.request import LoRARequest
from octavo.types.sampling_params import SamplingParams

# Stands in `draft_token_ids` for a draft that only the device knows: it made it at the end of the
# slot's step before, whose results the host does not have yet.
DEVICE_DRAFT = -1


class NewRequestData(msgspec.Struct, array_like=True, omit_defaults=True):
    """A request that takes a slot with this step: new, or resumed after a preemption."""

    slot: int
    request_id: str
    token_ids: list[int]  # all tokens known to the host: prompt + produced
    num_prompt_tokens: int
    num_computed_tokens: int  # already in the KV cache (prefix hit)
    block_ids: list[list[int]]  # one list per KV group
    sampling_params: SamplingParams
    seed: int
    lora_request: LoRARequest | None = None


class NewBlocks(msgspec.Struct, array_like=True):
    """Blocks appended to a live slot's table: they start at entry `start` of group `group`."""

    slot: int
    group: int
    start: int
    block_ids: list[int]


class SharedPrefix(msgspec.Struct, array_like=True):
    """Rows of this step whose block tables begin with the same blocks (cascade attention)."""

    rows: list[int]
    num_blocks: int


class SchedulerOutput(msgspec.Struct, array_like=True, omit_defaults=True):
    """One step. Row lists are parallel; row r belongs to slot `slots[r]`.

    The first `num_decode_rows` rows are decode rows: their first input token is the one last
    sampled for the slot (on the device), followed by that row's drafts. The other rows are
    prefill rows: their input tokens are `token_ids[computed : computed + scheduled]` of the
    request, known to the host. `num_computed_tokens` is optimistic for decode rows: drafts of
    steps in flight count as accepted, and the device subtracts what was rejected.
    """

    step_id: int
    new_requests: list[NewRequestData] = []
    freed_slots: list[int] = []  # to be cleared before this step; may be reused by new_requests
    slots: list[int] = []
    num_computed_tokens: list[int] = []
    num_scheduled_tokens: list[int] = []
    samples: list[bool] = []  # whether the row's last token is followed by sampling
    num_decode_rows: int = 0
    new_blocks: list[NewBlocks] = []
    draft_token_ids: dict[int, list[int]] = {}  # row -> drafts of a decode row
    shared_prefixes: list[SharedPrefix] = []
    total_num_scheduled_tokens: int = 0
