"""BadWords: bars the token that would complete a word that must not be produced."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from octavo.sampling.history import TokenHistory
from octavo.sampling.interface import SamplingKernels, SamplingRows
from octavo.sampling.logit_bias import token_array
from octavo.sampling.row_filters import RowSubset
from octavo.sampling.slot_params import SlotParams
from octavo.sampling.staging import Staging
from octavo.sampling.tables import PaddedTable, TableState
from octavo.types.scheduler_output import NewRequestData


class BadWords(TableState):
    """bad_words, as token sequences: if the outputs end with all but the last token of a word,
    that last token is out. Words of one token, which always are, are LogitBias's.

    Only outputs are compared: a word whose beginning is in the prompt is not barred. A slot's
    words lie one after the other in a row of tokens; two more rows hold where each ends and how
    long it is.
    """

    def __init__(
        self,
        vocab_size: int,
        params: SlotParams,
        history: TokenHistory,
        staging: Staging,
        kernels: SamplingKernels,
    ) -> None:
        super().__init__(staging)
        self._tokens = PaddedTable(self._rows, torch.int64)
        self._last = PaddedTable(self._rows, torch.int64)
        self._lengths = PaddedTable(self._rows, torch.int64)  # padding: words of length 0
        self._history_row = PaddedTable(self._rows, torch.int64)
        self._longest: dict[int, int] = {}
        self._vocab_size = vocab_size
        self._params = params
        self._history = history
        self._kernels = kernels

    def add(self, slot: int, new: NewRequestData) -> None:
        """Take in the request's words; they are in bad_words_token_ids, made by the front end."""
        words = [word for word in new.sampling_params.bad_words_token_ids or () if len(word) > 1]
        if not words:
            return
        flat = [token_id for word in words for token_id in word]
        tokens = token_array("bad_words", flat, self._vocab_size)
        lengths = [len(word) for word in words]
        ends = [end - 1 for end in itertools.accumulate(lengths)]
        longest = max(lengths)
        self._rows.take(slot)
        self._history_row.write(slot, [self._history.keep(slot, new)])
        self._tokens.write(slot, tokens)
        self._last.write(slot, ends)
        self._lengths.write(slot, lengths)
        self._longest[slot] = longest

    def remove(self, slot: int) -> None:
        """Forget the slot."""
        super().remove(slot)
        self._longest.pop(slot, None)

    def apply(self, logits: Tensor, rows: SamplingRows, subset: RowSubset) -> None:
        """Mask the tokens that would complete a word; one pass per token of the longest."""
        tokens = self._tokens.data.index_select(0, subset.table_rows)
        last = self._last.data.index_select(0, subset.table_rows)
        lengths = self._lengths.data.index_select(0, subset.table_rows)
        barred = lengths > 0
        for distance in range(1, max(self._longest.values())):
            expected = tokens.gather(1, (last - distance).clamp_(min=0))
            barred &= (lengths <= distance) | (expected == self._output(rows, subset, distance))
        values = torch.zeros_like(last, dtype=torch.float32).masked_fill_(barred, -torch.inf)
        self._kernels.add_at(logits, subset.index, tokens.gather(1, last), values)

    def _output(self, rows: SamplingRows, subset: RowSubset, distance: int) -> Tensor:
        """[U, 1] int64: the output token `distance` places back, -1 where that is none."""
        history_rows = self._history_row.data[subset.table_rows, 0]
        token_ids, positions = self._history.before(rows, subset, history_rows, distance)
        prompt_len = self._params.prompt_len.index_select(0, subset.take(rows.slots))
        return token_ids.masked_fill_(positions < prompt_len, -1)[:, None]
