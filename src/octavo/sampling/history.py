"""TokenHistory: the tokens of the slots whose features look back, on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from octavo.sampling.interface import SamplingRows
from octavo.sampling.row_filters import RowSubset
from octavo.sampling.staging import Staging
from octavo.sampling.tables import FixedTable, TableState
from octavo.types.scheduler_output import NewRequestData


class TokenHistory(TableState):
    """`tokens` [C, max_model_len] int32: prompt and outputs, by position, of its users.

    Entries from a row's position on mean nothing. A slot becomes a user when a feature keeps it.
    """

    def __init__(self, max_model_len: int, staging: Staging) -> None:
        super().__init__(staging)
        self._table = FixedTable(self._rows, max_model_len, torch.int32)
        self._max_model_len = max_model_len
        self._lengths: dict[int, int] = {}  # slot -> tokens it has at most, steps in flight counted

    @property
    def tokens(self) -> Tensor:
        """[C, max_model_len] int32."""
        return self._table.data

    def keep(self, slot: int, new: NewRequestData) -> int:
        """Keep the request's tokens from now on; their table row, the slot's until it leaves."""
        if len(new.token_ids) > self._max_model_len:
            raise ValueError(
                f"{len(new.token_ids)} tokens are more than max_model_len={self._max_model_len}"
            )
        if slot not in self.users:
            self._rows.take(slot)
            self._rows.stage(slot, new.token_ids, self._write)
            self._lengths[slot] = len(new.token_ids)
        return self.users[slot]

    def add(self, slot: int, new: NewRequestData) -> None:
        """A slot is a user only if a feature keeps it."""

    def remove(self, slot: int) -> None:
        """Forget the slot."""
        super().remove(slot)
        self._lengths.pop(slot, None)

    def advance(self, slots: list[int]) -> None:
        """The host's part of a step: each row of a slot may add a token."""
        for slot in slots:
            if slot in self._lengths:
                self._lengths[slot] += 1

    def commit(self, rows: SamplingRows, subset: RowSubset, token_ids: Tensor) -> None:
        """Write the step's tokens [R] at their positions.

        Tokens of rejected rows may be among them: they lie past the sequence's new end and are
        written over before they are looked at.
        """
        columns = self.columns(subset.take(rows.positions))
        values = subset.take(token_ids).to(torch.int32)
        self.tokens.index_put_((subset.table_rows, columns), values)

    def before(
        self, rows: SamplingRows, subset: RowSubset, table_rows: Tensor, distance: int
    ) -> tuple[Tensor, Tensor]:
        """The tokens `distance` >= 1 places before the rows' positions, drafts included.

        Returns (token ids [U] int64, their positions [U] int64); where a position is negative
        the token means nothing. `table_rows` [U] are the rows' entries of `users`.
        """
        positions = subset.take(rows.positions) - distance
        token_ids = self.tokens[table_rows, self.columns(positions)].to(torch.int64)
        drafts = rows.draft_at(subset, distance)
        if drafts is not None:
            token_ids = torch.where(drafts[1], drafts[0], token_ids)
        return token_ids, positions

    def sequences(self, rows: SamplingRows, subset: RowSubset, table_rows: Tensor) -> Tensor:
        """[U, W] int32: the tokens before each row, drafts included; a copy.

        W is what the longest of the subset needs; a row's entries from its position on mean
        nothing. `table_rows` [U] are the rows' entries of `users`.
        """
        longest = max(self._lengths[rows.slots_cpu[row]] for row in subset.rows)
        width = min(longest + rows.max_drafts + 1, self._max_model_len)
        tokens = self.tokens[table_rows, :width]
        positions = subset.take(rows.positions)
        for distance in range(1, rows.max_drafts + 1):
            drafts = rows.draft_at(subset, distance)
            if drafts is not None:
                columns = (positions - distance).clamp_(0, width - 1)[:, None]
                old = tokens.gather(1, columns)
                new = torch.where(drafts[1][:, None], drafts[0][:, None].to(old.dtype), old)
                tokens.scatter_(1, columns, new)
        return tokens

    def columns(self, positions: Tensor) -> Tensor:
        """The positions, kept inside the table.

        A step in flight may go past the end of a sequence that has just filled the model; its
        token is dropped, but an index out of bounds would end the device's work for all.
        """
        return positions.clamp(0, self._max_model_len - 1)

    def _write(self, row: int, part: Tensor) -> None:
        self.tokens[row, : part.shape[0]] = part
