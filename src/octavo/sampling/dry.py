"""Dry: a penalty on the token that would go on with something the sequence has said before."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from octavo.kernels.reference.repeats import extend_runs, repeat_penalties
from octavo.sampling.history import TokenHistory
from octavo.sampling.interface import SamplingRows
from octavo.sampling.logit_bias import token_array
from octavo.sampling.row_filters import RowSubset
from octavo.sampling.staging import Staging
from octavo.sampling.tables import FixedTable, PaddedTable, TableState
from octavo.types.scheduler_output import NewRequestData


class Dry(TableState):
    """dry_*: "don't repeat yourself", by p-e-w (text-generation-webui pull request 5677).

    If the last L tokens stand somewhere earlier in prompt or outputs too, followed by token t, then
    t loses dry_multiplier * dry_base ** (L - dry_allowed_length), if L is at least
    dry_allowed_length; L is the longest such run before any t, without a breaker in it.

    The lengths of the runs that end at each position grow with every token, on the device, so a
    step costs a pass over the sequence and not one per token of a run.
    """

    def __init__(
        self, vocab_size: int, max_model_len: int, history: TokenHistory, staging: Staging
    ) -> None:
        super().__init__(staging)
        self._runs = FixedTable(self._rows, max_model_len, torch.int32)
        self._breakers = FixedTable(self._rows, vocab_size, torch.bool)
        self._factors = PaddedTable(self._rows, torch.float32)  # multiplier, base
        # Row of the history, tokens to look back, allowed length.
        self._limits = PaddedTable(self._rows, torch.int64)
        self._vocab_size = vocab_size
        self._history = history

    def add(self, slot: int, new: NewRequestData) -> None:
        """Take in the request; its runs so far are found on the host."""
        params = new.sampling_params
        if params.dry_multiplier == 0.0:
            return
        breakers = token_array(
            "dry_sequence_breakers", params.dry_breaker_ids or (), self._vocab_size
        )
        tokens = token_array("token_ids", new.token_ids, self._vocab_size)
        window = params.dry_penalty_last_n
        self._rows.take(slot)
        self._limits.write(
            slot,
            [
                self._history.keep(slot, new),
                window if window > 0 else np.iinfo(np.int32).max,
                params.dry_allowed_length,
            ],
        )
        self._factors.write(slot, [params.dry_multiplier, params.dry_base])
        self._rows.stage(slot, breakers, self._write_breakers)
        self._rows.stage(slot, suffix_runs(tokens, breakers), self._write_runs)

    def apply(self, logits: Tensor, rows: SamplingRows, subset: RowSubset) -> None:
        """Subtract the penalties; drafts before a row are part of its sequence."""
        limits = self._limits.data.index_select(0, subset.table_rows)
        multiplier, base = self._factors.data.index_select(0, subset.table_rows)[:, :2].unbind(1)
        tokens = self._history.sequences(rows, subset, limits[:, 0])
        runs = self._runs.data[subset.table_rows, : tokens.shape[1]]
        for distance in range(rows.max_drafts, 0, -1):
            drafts = rows.draft_at(subset, distance)
            if drafts is not None:
                grown = self._extended(runs, tokens, drafts[0].clamp(min=0), subset)
                runs = torch.where(drafts[1][:, None], grown, runs)
        token_ids, penalties = repeat_penalties(
            runs,
            tokens,
            subset.take(rows.positions),
            limits[:, 1],
            limits[:, 2],
            (multiplier, base),
            logits.shape[1],
        )
        index = subset.index
        each = torch.arange(logits.shape[0], device=logits.device) if index is None else index
        # A token that is named twice gets the same value twice.
        logits[each[:, None], token_ids] = logits[each[:, None], token_ids] - penalties

    def commit(
        self, rows: SamplingRows, subset: RowSubset, token_ids: Tensor, accepted: Tensor | None
    ) -> None:
        """Take the step's tokens [R], where accepted[R], into the runs."""
        limits = self._limits.data.index_select(0, subset.table_rows)
        tokens = self._history.sequences(rows, subset, limits[:, 0])
        width = tokens.shape[1]
        runs = self._runs.data[subset.table_rows, :width]
        for new, counts in rows.in_turn(subset, subset.take(token_ids), accepted):
            runs = torch.where(counts[:, None], self._extended(runs, tokens, new, subset), runs)
        # The rows of a slot hold the same by now.
        self._runs.data[subset.table_rows, :width] = runs

    def _extended(self, runs: Tensor, tokens: Tensor, new: Tensor, subset: RowSubset) -> Tensor:
        breaks = self._breakers.data[subset.table_rows, new]
        return extend_runs(runs, tokens, new, breaks)

    def _write_runs(self, row: int, part: Tensor) -> None:
        self._runs.data[row, : part.shape[0]] = part

    def _write_breakers(self, row: int, ids: Tensor) -> None:
        self._breakers.data[row] = False
        self._breakers.data[row].index_fill_(0, ids.to(torch.int64), True)


def suffix_runs(
    tokens: npt.NDArray[np.int32], breakers: npt.NDArray[np.int32]
) -> npt.NDArray[np.int32]:
    """[N]: how many tokens up to and with each position equal as many at the end of tokens[N].

    The Z-algorithm (Gusfield 1997) on the reversed tokens: linear, however often they repeat.
    """
    length = len(tokens)
    runs = np.zeros(length, np.int32)
    broken = np.flatnonzero(np.isin(tokens, breakers))
    limit = length - 1 - int(broken[-1]) if len(broken) else length
    if limit == 0:
        return runs
    text: list[int] = tokens[::-1].tolist()
    found = [0] * length
    left = right = 0  # text[left:right] equals the beginning of text
    for start in (np.flatnonzero(tokens[::-1][1:] == text[0]) + 1).tolist():
        run = min(right - start, found[start - left]) if start < right else 0
        while run < limit and start + run < length and text[run] == text[start + run]:
            run += 1
        found[start] = run
        if start + run > right:
            left, right = start, start + run
    runs[:] = found[::-1]
    return runs
