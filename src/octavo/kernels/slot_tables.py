"""SlotTables: where the sampling kernels find the parameters and features of a slot."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from torch import Tensor


class Word(enum.IntEnum):
    """Places of the 32-bit words in a slot's row of `SlotTables.params`."""

    TEMPERATURE = 0  # float bits; 1.0 where greedy
    TOP_P = 1  # float bits, in (0, 1]; 1: off
    LOG_MIN_P = 2  # float bits; minus infinity: off
    TOP_K = 3  # in [1, V]; V: off
    SEED_LOW = 4
    SEED_HIGH = 5
    PROMPT_LEN = 6
    KIND = 7


NUM_WORDS = len(Word)


class Kind(enum.IntEnum):
    """How a slot's token is chosen. A slot that never held a request is greedy."""

    GREEDY = 0  # the highest logit
    WHOLE = 1  # a draw from the whole softmax
    TRUNCATED = 2  # a draw after min-p, top-k or top-p


class Feature(enum.IntEnum):
    """Columns of `SlotTables.features`: the slot's row in a feature's tables, -1 for none."""

    PENALTIES = 0
    ALLOWED = 1
    BIAS = 2
    MIN_TOKENS = 3


NUM_FEATURES = len(Feature)

PENALTIES_WIDTH = 4  # of a slot's row of penalties, the last word unused


@dataclass(frozen=True, slots=True, eq=False)
class SlotTables:
    """Everything by slot that a draw reads. N slots; a feature's tables have C rows, 0 if unused.

    What a captured graph has read from: as long as the object is the same, so is the storage.
    """

    params: Tensor  # [N, NUM_WORDS] int32
    features: Tensor  # [N, NUM_FEATURES] int32
    seen: Tensor  # [C, V] int32: PROMPT_FLAG for a prompt token, plus the count of its outputs
    penalties: Tensor  # [C, PENALTIES_WIDTH] float32: repetition, frequency, presence
    allowed: Tensor  # [C, V] bool
    bias_ids: Tensor  # [C, W] int64; padding adds 0.0 to token 0
    bias_values: Tensor  # [C, W] float32
    min_tokens_ids: Tensor  # [C, W] int64; padding: -1
    min_tokens: Tensor  # [C, 1] int64: how many outputs there must be before one of those
