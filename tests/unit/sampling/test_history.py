"""TokenHistory: tokens by position on the device."""

from __future__ import annotations

import pytest
import torch

from octavo.sampling.history import TokenHistory
from octavo.sampling.row_filters import RowSubset, filter_rows
from octavo.sampling.staging import Staging
from octavo.types.sampling_params import SamplingParams
from support.sampling_requests import CPU, Sequence, draft_rows, make_rows


@pytest.fixture
def history() -> tuple[TokenHistory, Staging]:
    staging = Staging(CPU)
    return TokenHistory(8, staging), staging


def _new(prompt: list[int], outputs: list[int]):
    return Sequence(SamplingParams(), prompt, 0, outputs).as_new(0)


def _subset(history: TokenHistory, slots: list[int]) -> RowSubset:
    subset = filter_rows(slots, [history.users], CPU)[0]
    assert subset is not None
    return subset


def test_a_slot_is_kept_only_on_request(history) -> None:
    table, _ = history
    table.add(3, _new([1], []))
    assert table.active == 0
    row = table.keep(3, _new([1], []))
    assert table.keep(3, _new([1], [])) == row
    assert table.users == {3: row}


def test_too_many_tokens_are_refused(history) -> None:
    table, _ = history
    with pytest.raises(ValueError, match="9 tokens are more than max_model_len=8"):
        table.keep(0, _new([1] * 9, []))
    assert table.active == 0


def test_tokens_before_a_row(history) -> None:
    table, staging = history
    for slot, tokens in ((5, [1, 2, 3]), (2, [9])):
        table.keep(slot, _new(tokens, []))
    staging.flush()
    rows = make_rows([5, 0, 2], [3, 0, 1])
    subset = _subset(table, rows.slots_cpu)
    table.commit(rows, subset, torch.tensor([4, 99, 8]))
    rows = make_rows([2, 5], [2, 4])
    subset = _subset(table, rows.slots_cpu)
    for distance, expected, positions in ((1, [8, 4], [1, 3]), (2, [9, 3], [0, 2])):
        tokens, at = table.before(rows, subset, subset.table_rows, distance)
        assert tokens.tolist() == expected
        assert at.tolist() == positions
    assert table.before(rows, subset, subset.table_rows, 3)[1].tolist() == [-1, 1]


def test_tokens_before_a_row_include_drafts(history) -> None:
    table, staging = history
    table.keep(1, _new([1, 2], []))
    staging.flush()
    rows = draft_rows([(0, 4, [50]), (1, 2, [60, 61])])
    subset = _subset(table, rows.slots_cpu)
    assert table.before(rows, subset, subset.table_rows, 1)[0].tolist() == [2, 60, 61]
    assert table.before(rows, subset, subset.table_rows, 2)[0].tolist() == [1, 2, 60]
