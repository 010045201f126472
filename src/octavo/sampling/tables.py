"""Device tables with rows only for the slots that need one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from octavo.sampling.staging import Staging, Words
from octavo.utils.misc import next_power_of_2

_FIRST_CAPACITY = 4

Values = Sequence[int] | Sequence[float] | npt.NDArray[np.int32]


class SlotRows:
    """Hands out the rows of one or more tables to slots.

    The tables double when rows run out and are dropped when no slot holds one: a feature that
    nobody uses costs no memory. With `fixed_rows` they have all their rows from the first use on
    and are kept, because captured graphs read from where they lie.
    """

    def __init__(self, staging: Staging, fixed_rows: int = 0) -> None:
        self.rows: dict[int, int] = {}
        self.device = staging.device
        self._staging = staging
        self._tables: list[FixedTable | PaddedTable] = []
        self._leases: dict[int, object] = {}
        self._free: list[int] = []
        self._capacity = 0
        self._fixed_rows = fixed_rows

    def attach(self, table: FixedTable | PaddedTable) -> None:
        """Keep a table at as many rows as are handed out."""
        self._tables.append(table)

    def take(self, slot: int) -> int:
        """A free row for the slot; the one it holds if it has one.

        When a table can't grow the error (out of memory) leaves everything as it was.
        """
        if slot in self.rows:
            return self.rows[slot]
        if not self._free:
            capacity = max(self._fixed_rows, 2 * self._capacity or _FIRST_CAPACITY)
            for table in self._tables:
                table.resize(capacity)
            self._free = list(range(capacity - 1, self._capacity - 1, -1))
            self._capacity = capacity
        row = self._free.pop()
        self.rows[slot] = row
        self._leases[slot] = object()
        return row

    def release(self, slot: int) -> None:
        """Give the slot's row back, if it holds one."""
        row = self.rows.pop(slot, None)
        if row is None:
            return
        del self._leases[slot]
        self._free.append(row)
        if not self.rows and not self._fixed_rows:
            self._free.clear()
            self._capacity = 0
            for table in self._tables:
                table.resize(0)

    def stage(self, slot: int, values: Words, write: Callable[[int, Tensor], None]) -> None:
        """Stage a write to the slot's row: `write(row, int32 [N])`.

        It is left out if the slot gives its row back before the flush.
        """
        row, lease = self.rows[slot], self._leases[slot]

        def write_if_held(part: Tensor) -> None:
            if self._leases.get(slot) is lease:
                write(row, part)

        self._staging.put(values, write_if_held)


class TableState:
    """The part of a SlotState that holds for all whose users have a row in its tables."""

    def __init__(self, staging: Staging, *, in_graphs: bool = False) -> None:
        self._rows = SlotRows(staging, staging.graph_rows if in_graphs else 0)

    @property
    def users(self) -> Mapping[int, int]:
        """Slots that use this state -> their rows in its tables."""
        return self._rows.rows

    @property
    def active(self) -> int:
        """How many slots use this state."""
        return len(self._rows.rows)

    def remove(self, slot: int) -> None:
        """Forget the slot."""
        self._rows.release(slot)

    def flush(self) -> None:
        """Changes are staged as they come: there is nothing left to hand over."""


class FixedTable:
    """`data` [C, W]: rows of one width, zero at first; a reused row keeps its old values."""

    def __init__(self, rows: SlotRows, width: int, dtype: torch.dtype) -> None:
        self.data = torch.empty(0, width, dtype=dtype, device=rows.device)
        rows.attach(self)

    def resize(self, capacity: int) -> None:
        """Change the number of rows; those that stay keep their values."""
        self.data = _resized(self.data, capacity)


class PaddedTable:
    """`data` [C, W]: lists of unequal length, padded at the right with `fill`.

    int64 for ids (that fit 32 bits) or float32. W is a power of two that fits the longest list
    written since the table was last empty, and at least `least_width`.
    """

    def __init__(
        self, rows: SlotRows, dtype: torch.dtype, fill: int = 0, least_width: int = 1
    ) -> None:
        self.data = torch.empty(0, 0, dtype=dtype, device=rows.device)
        self._rows = rows
        self._fill = fill
        self._least_width = least_width
        rows.attach(self)

    def resize(self, capacity: int) -> None:
        """Change the number of rows; those that stay keep their values."""
        self.data = _resized(self.data, capacity) if capacity else self.data.new_empty(0, 0)

    def write(self, slot: int, values: Values) -> None:
        """Stage the slot's list."""
        width = max(next_power_of_2(len(values)), self._least_width)
        extra = width - self.data.shape[1]
        if extra > 0:
            padding = self.data.new_full((self.data.shape[0], extra), self._fill)
            self.data = torch.cat([self.data, padding], dim=1)
        is_float = self.data.dtype == torch.float32
        self._rows.stage(slot, _words(values, is_float), self._write)

    def _write(self, row: int, part: Tensor) -> None:
        length = part.shape[0]
        is_float = self.data.dtype == torch.float32
        self.data[row, :length] = part.view(torch.float32) if is_float else part
        self.data[row, length:] = self._fill


def _words(values: Values, is_float: bool) -> Words:
    return np.array(values, np.float32) if is_float else np.array(values, np.int32)


def _resized(table: Tensor, capacity: int) -> Tensor:
    grown = table.new_zeros(capacity, table.shape[1])
    kept = min(capacity, table.shape[0])
    grown[:kept] = table[:kept]
    return grown
