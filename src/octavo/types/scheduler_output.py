"""SchedulerOutput: the work of one step, as the scheduler tells it to the workers."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from octavo.types.pooling_params import PoolingParams
from octavo.types.request import LoRARequest
from octavo.types.sampling_params import SamplingParams

# Stands in `draft_token_ids` for a draft that only the device knows: it made it at the end of the
# slot's step before, whose results the host does not have yet.
DEVICE_DRAFT = -1

# The most shared prefixes of a step: what attention sizes its buffers for.
MAX_SHARED_PREFIXES = 16


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
    pooling_params: PoolingParams | None = None
    mirostat_mu: float | None = None  # of a resumed request: what it had come to


class NewBlocks(msgspec.Struct, array_like=True):
    """Blocks appended to a live slot's table: they start at entry `start` of group `group`."""

    slot: int
    group: int
    start: int
    block_ids: list[int]


class SharedPrefix(msgspec.Struct, array_like=True):
    """Rows of this step whose block tables begin with the same blocks (cascade attention).

    They are decode rows of one token each, side by side. In every KV group that keeps all tokens
    their tables agree up to `num_tokens`, whose keys and values were computed in earlier steps.
    """

    first_row: int
    num_rows: int
    num_tokens: int


class SchedulerOutput(msgspec.Struct, array_like=True, omit_defaults=True):
    """One step. Row lists are parallel; row r belongs to slot `slots[r]`.

    The first `num_decode_rows` rows are decode rows: their first input token is the one last
    sampled for the slot (on the device), followed by that row's drafts; or all their tokens are
    in `forced_token_ids`. The other rows are prefill rows: their input tokens are
    `token_ids[computed : computed + scheduled]` of the request, known to the host.
    `num_computed_tokens` is optimistic for decode rows: drafts of steps in flight count as
    accepted, and the device subtracts what was rejected.
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
    shared_prefixes: list[SharedPrefix] = []  # disjoint, in order of their rows
    total_num_scheduled_tokens: int = 0
    # Rows whose requests have a grammar: sampling waits for the step's GrammarMasks if there are
    # any, for their masks depend on the tokens of the step before.
    grammar_rows: list[int] = []
    # Decode row -> its input tokens, which a grammar has left no choice about.
    forced_token_ids: dict[int, list[int]] = {}


@dataclass(frozen=True, slots=True)
class GrammarMasks:
    """Which tokens may come next, in those rows of a step that are bound at present.

    Bit t % 32 of word t // 32 of a mask is that of token t.
    """

    step_id: int
    rows: list[int]
    masks: npt.NDArray[np.int32]  # [len(rows), ceil(V / 32)]
