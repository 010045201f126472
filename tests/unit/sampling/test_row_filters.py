"""Row filters: the rows of a step that use a feature, in one upload."""

from __future__ import annotations

import torch

from octavo.sampling.row_filters import filter_rows
from support.sampling_requests import CPU


def test_filter_rows() -> None:
    slots = [4, 2, 9, 2]
    some, every, none, other = filter_rows(slots, [{2: 5}, {4: 0, 2: 1, 9: 2}, {}, {7: 1}], CPU)
    assert some.rows == [1, 3]
    assert some.index.tolist() == [1, 3]
    assert some.table_rows.tolist() == [5, 5]
    assert some.take(torch.tensor([10, 11, 12, 13])).tolist() == [11, 13]
    assert every.index is None
    assert every.table_rows.tolist() == [0, 1, 2, 1]
    assert none is None
    assert other is None
    assert filter_rows([], [{1: 1}], CPU) == [None]
