"""Biases, allowed tokens and the ban on stop tokens before min_tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from octavo.sampling.interface import SamplingKernels, SamplingRows
from octavo.sampling.row_filters import RowSubset
from octavo.sampling.slot_params import SlotParams
from octavo.sampling.staging import Staging
from octavo.sampling.tables import FixedTable, PaddedTable, TableState
from octavo.types.errors import RequestError
from octavo.types.scheduler_output import NewRequestData

# Lists of a few tokens don't widen their table, which would have graphs captured anew.
_LEAST_WIDTH = 16


def token_array(name: str, ids: Sequence[int], vocab_size: int) -> npt.NDArray[np.int32]:
    """Token ids of a request parameter; RequestError if one is outside the vocabulary.

    An id out of range would write past a row on the device, which no later check could catch.
    """
    wide = np.asarray(ids, np.int64)
    if len(wide) and (wide.min() < 0 or wide.max() >= vocab_size):
        bad = int(wide[(wide < 0) | (wide >= vocab_size)][0])
        raise RequestError(f"{name} holds the token id {bad}; ids are in [0, {vocab_size})", name)
    return wide.astype(np.int32)


class LogitBias(TableState):
    """logit_bias, added to the logits of the tokens named; -inf for bad words of one token."""

    def __init__(self, vocab_size: int, staging: Staging, kernels: SamplingKernels) -> None:
        super().__init__(staging, in_graphs=True)
        self._ids = PaddedTable(self._rows, torch.int64, least_width=_LEAST_WIDTH)
        # Padding adds 0 to token 0.
        self._values = PaddedTable(self._rows, torch.float32, least_width=_LEAST_WIDTH)
        self._vocab_size = vocab_size
        self._kernels = kernels

    def add(self, slot: int, new: NewRequestData) -> None:
        """Take in the request's biases, and the bad words that are barred whatever came before."""
        params = new.sampling_params
        bias = params.logit_bias or {}
        words = [word[0] for word in params.bad_words_token_ids or () if len(word) == 1]
        if bias or words:
            biased = token_array("logit_bias", list(bias), self._vocab_size)
            barred = token_array("bad_words", words, self._vocab_size)
            self._rows.take(slot)
            self._ids.write(slot, np.concatenate([biased, barred]))
            self._values.write(slot, [*bias.values(), *[-np.inf] * len(words)])

    @property
    def ids(self) -> Tensor:
        """[C, W] int64; see SlotTables."""
        return self._ids.data

    @property
    def values(self) -> Tensor:
        """[C, W] float32; see SlotTables."""
        return self._values.data

    def apply(self, logits: Tensor, rows: SamplingRows, subset: RowSubset) -> None:
        """Add the biases."""
        ids = self._ids.data.index_select(0, subset.table_rows)
        values = self._values.data.index_select(0, subset.table_rows)
        self._kernels.add_at(logits, subset.index, ids, values)


class AllowedTokens(TableState):
    """allowed_token_ids: every other token is out."""

    def __init__(self, vocab_size: int, staging: Staging, kernels: SamplingKernels) -> None:
        super().__init__(staging, in_graphs=True)
        self._allowed = FixedTable(self._rows, vocab_size, torch.bool)
        self._vocab_size = vocab_size
        self._kernels = kernels

    @property
    def allowed(self) -> Tensor:
        """[C, V] bool; see SlotTables."""
        return self._allowed.data

    def add(self, slot: int, new: NewRequestData) -> None:
        """Take in the request's list."""
        ids = new.sampling_params.allowed_token_ids
        if ids is not None:
            array = token_array("allowed_token_ids", ids, self._vocab_size)
            self._rows.take(slot)
            self._rows.stage(slot, array, self._write)

    def apply(self, logits: Tensor, rows: SamplingRows, subset: RowSubset) -> None:
        """Mask what is not allowed."""
        self._kernels.keep_only(logits, subset.index, self._allowed.data, subset.table_rows)

    def _write(self, row: int, ids: Tensor) -> None:
        self._allowed.data[row] = False
        self._allowed.data[row].index_fill_(0, ids.to(torch.int64), True)


class MinTokens(TableState):
    """min_tokens: no token that ends the request before that many outputs.

    These are stop_token_ids and, unless ignore_eos, the model's EOS ids. The device compares
    positions; the host counts steps, each of which adds at least one token, and drops the slot
    once the comparison can't hold any more.
    """

    def __init__(
        self, vocab_size: int, params: SlotParams, staging: Staging, kernels: SamplingKernels
    ) -> None:
        super().__init__(staging, in_graphs=True)
        self._ids = PaddedTable(self._rows, torch.int64, fill=-1, least_width=_LEAST_WIDTH)
        self._min_tokens = PaddedTable(self._rows, torch.int64)
        self._remaining: dict[int, int] = {}
        self._vocab_size = vocab_size
        self._params = params
        self._kernels = kernels

    @property
    def ids(self) -> Tensor:
        """[C, W] int64; see SlotTables."""
        return self._ids.data

    @property
    def min_tokens(self) -> Tensor:
        """[C, 1] int64; see SlotTables."""
        return self._min_tokens.data

    def add(self, slot: int, new: NewRequestData) -> None:
        """Take in the request if it is below its min_tokens and has tokens to hold back."""
        params = new.sampling_params
        remaining = params.min_tokens - (len(new.token_ids) - new.num_prompt_tokens)
        ends = set(params.stop_token_ids or ())
        if not params.ignore_eos:
            ends.update(params.eos_token_ids or ())
        if remaining <= 0 or not ends:
            return
        ids = token_array("stop_token_ids", sorted(ends), self._vocab_size)
        self._rows.take(slot)
        self._ids.write(slot, ids)
        self._min_tokens.write(slot, [params.min_tokens])
        self._remaining[slot] = remaining

    def remove(self, slot: int) -> None:
        """Forget the slot."""
        super().remove(slot)
        self._remaining.pop(slot, None)

    def apply(self, logits: Tensor, rows: SamplingRows, subset: RowSubset) -> None:
        """Mask the ends of rows whose position is too early."""
        ids = self._ids.data.index_select(0, subset.table_rows)
        min_tokens = self._min_tokens.data.index_select(0, subset.table_rows)
        prompt_len = self._params.prompt_len.index_select(0, subset.take(rows.slots))
        too_early = subset.take(rows.positions) < prompt_len + min_tokens[:, 0]
        barred = too_early[:, None] & (ids >= 0)
        values = torch.zeros_like(ids, dtype=torch.float32).masked_fill_(barred, -torch.inf)
        self._kernels.add_at(logits, subset.index, ids.clamp_(min=0), values)

    def advance(self, slots: set[int]) -> list[int]:
        """Count a step of these slots; those of them that need no more masking."""
        done = []
        for slot in self._remaining.keys() & slots:
            self._remaining[slot] -= 1
            if self._remaining[slot] <= 0:
                self.remove(slot)
                done.append(slot)
        return done
