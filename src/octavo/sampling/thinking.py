"""ThinkingBudget: writes the end of a model's thinking when it has thought long enough."""

from __future__ import annotations

import torch
from torch import Tensor

from octavo.sampling.history import TokenHistory
from octavo.sampling.interface import SamplingRows
from octavo.sampling.logit_bias import token_array
from octavo.sampling.row_filters import RowSubset
from octavo.sampling.slot_params import SlotParams
from octavo.sampling.staging import Staging
from octavo.sampling.tables import PaddedTable, TableState
from octavo.types.sampling_extras import MAX_MARK_TOKENS, MAX_MARKS
from octavo.types.scheduler_output import NewRequestData

_WIDTH = MAX_MARKS * MAX_MARK_TOKENS


class ThinkingBudget(TableState):
    """thinking_token_budget: as many tokens after the start of a thought, and the model's end
    mark is written, token by token, in place of what the logits say.

    Whether a row is within a thought is read off its tokens each time: the last start mark in
    prompt or outputs has no end mark after it. So nothing has to be kept from step to step.
    """

    def __init__(
        self, vocab_size: int, params: SlotParams, history: TokenHistory, staging: Staging
    ) -> None:
        super().__init__(staging)
        # Marks backwards, -1 beyond their beginning; MAX_MARK_TOKENS for each of MAX_MARKS.
        self._starts = PaddedTable(self._rows, torch.int64, fill=-1, least_width=_WIDTH)
        self._ends = PaddedTable(self._rows, torch.int64, fill=-1, least_width=_WIDTH)
        # Row of the history, budget, 1 if the outputs begin within a thought.
        self._limits = PaddedTable(self._rows, torch.int64)
        self._sizes: dict[int, tuple[int, int]] = {}  # slot -> most marks of a kind, longest mark
        self._vocab_size = vocab_size
        self._params = params
        self._history = history

    def add(self, slot: int, new: NewRequestData) -> None:
        """Take in the request; the marks are in thinking_marks, made by the front end."""
        budget = new.sampling_params.thinking_token_budget
        marks = new.sampling_params.thinking_marks
        if budget is None or marks is None:
            return
        every = [*marks.starts, *marks.ends]
        for mark in every:
            token_array("thinking_marks", mark, self._vocab_size)
        self._rows.take(slot)
        self._starts.write(slot, _backwards(marks.starts))
        self._ends.write(slot, _backwards(marks.ends))
        self._limits.write(slot, [self._history.keep(slot, new), budget, int(marks.inside)])
        most = max(len(marks.starts), len(marks.ends))
        self._sizes[slot] = most, max(len(mark) for mark in every)

    def remove(self, slot: int) -> None:
        """Forget the slot."""
        super().remove(slot)
        self._sizes.pop(slot, None)

    def apply(self, logits: Tensor, rows: SamplingRows, subset: RowSubset) -> None:
        """Leave only the next token of the end mark in rows whose budget is used up."""
        limits = self._limits.data.index_select(0, subset.table_rows)
        history_rows, budget, inside = limits[:, :3].unbind(1)
        tokens = self._history.sequences(rows, subset, history_rows)
        lengths = subset.take(rows.positions)
        prompt_len = self._params.prompt_len.index_select(0, subset.take(rows.slots))
        ends = self._marks(self._ends, subset)
        begun = self._last(tokens, lengths, self._marks(self._starts, subset))
        ended = self._last(tokens, lengths, ends)
        # What ended in the prompt was another thought than the one that the output begins in.
        ended = ended.masked_fill_((inside > 0) & (ended <= prompt_len), 0)
        begun = torch.maximum(begun, inside * prompt_len)
        thinking = begun > ended
        spent = lengths - begun - budget  # and so many tokens of the end are there already
        over = thinking & (spent >= 0)
        size = (ends[:, 0] >= 0).sum(dim=-1)
        place = (size - 1 - spent).clamp_(min=0).minimum(size - 1)
        forced = ends[:, 0].gather(1, place[:, None])
        x = subset.take(logits).masked_fill(over[:, None], -torch.inf)
        x.scatter_(1, forced, x.gather(1, forced).masked_fill_(over[:, None], 0.0))
        if subset.index is None:
            logits.copy_(x)
        else:
            logits.index_copy_(0, subset.index, x)

    def _marks(self, table: PaddedTable, subset: RowSubset) -> Tensor:
        """[U, MAX_MARKS, MAX_MARK_TOKENS]."""
        marks = table.data.index_select(0, subset.table_rows)
        return marks.view(-1, MAX_MARKS, MAX_MARK_TOKENS)

    def _last(self, tokens: Tensor, lengths: Tensor, marks: Tensor) -> Tensor:
        """[U]: where the last of the marks in each sequence ends, as a length; 0 for none."""
        most, longest = (max(sizes) for sizes in zip(*self._sizes.values(), strict=True))
        ends = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
        known = ends <= lengths[:, None]
        last = torch.zeros_like(lengths)
        for mark in range(most):
            here = known & (marks[:, mark, :1] >= 0)
            for back in range(longest):
                wanted = marks[:, mark, back, None]
                # What is rolled round from the end lies before the sequence's beginning.
                equal = (tokens.roll(back, dims=1) == wanted) & (ends > back)
                here &= equal | (wanted < 0)
            last = torch.maximum(last, (ends * here).amax(dim=-1))
        return last


def _backwards(marks: list[list[int]]) -> list[int]:
    flat: list[int] = []
    for mark in marks:
        flat += [*reversed(mark), *[-1] * (MAX_MARK_TOKENS - len(mark))]
    return flat
