"""Tables with rows for the slots that need one."""

from __future__ import annotations

import pytest
import torch

from octavo.sampling.staging import Staging
from octavo.sampling.tables import FixedTable, PaddedTable, SlotRows
from support.sampling_requests import CPU


def _rows() -> tuple[SlotRows, Staging]:
    staging = Staging(CPU)
    return SlotRows(staging), staging


def test_rows_are_kept_reused_and_dropped() -> None:
    rows, _ = _rows()
    table = FixedTable(rows, 3, torch.int32)
    taken = [rows.take(slot) for slot in (10, 20, 30, 40)]
    assert sorted(taken) == [0, 1, 2, 3]
    assert rows.take(20) == taken[1]
    table.data[:] = torch.arange(4, dtype=torch.int32)[:, None]
    rows.release(20)
    assert rows.take(50) == taken[1]
    assert rows.take(60) == 4
    assert table.data.shape == (8, 3)
    assert table.data[:5, 0].tolist() == [0, 1, 2, 3, 0]
    for slot in (10, 30, 40, 50, 60, 70):
        rows.release(slot)
    assert table.data.shape == (0, 3)
    assert rows.take(1) == 0


def test_a_table_that_cannot_grow_leaves_the_rows_alone() -> None:
    rows, _ = _rows()
    FixedTable(rows, 2, torch.int32)

    class Full(FixedTable):
        def resize(self, capacity: int) -> None:
            if capacity > 4:
                raise MemoryError("full")
            super().resize(capacity)

    Full(rows, 2, torch.int32)
    for slot in range(4):
        rows.take(slot)
    with pytest.raises(MemoryError):
        rows.take(4)
    assert set(rows.rows) == {0, 1, 2, 3}
    rows.release(2)
    assert rows.take(5) == 2


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_padded_lists_of_any_length(dtype: torch.dtype) -> None:
    rows, staging = _rows()
    table = PaddedTable(rows, dtype, fill=-1)
    lists = {7: [1.0, 2.0], 3: [5.0], 9: [1.0, 2.0, 3.0, 4.0, 5.0], 1: []}
    for slot, values in lists.items():
        rows.take(slot)
        table.write(slot, values)
    staging.flush()
    for slot, values in lists.items():
        assert table.data[rows.rows[slot]].tolist() == values + [-1.0] * (8 - len(values))
    table.write(9, [4.0])
    staging.flush()
    assert table.data[rows.rows[9]].tolist() == [4.0] + [-1.0] * 7


def test_a_write_is_left_out_when_the_row_is_given_back() -> None:
    rows, staging = _rows()
    table = PaddedTable(rows, torch.int64)
    rows.take(0)
    table.write(0, list(range(100)))
    rows.release(0)
    rows.take(0)
    table.write(0, [3])
    staging.flush()
    assert table.data[rows.rows[0]].tolist() == [3]
