"""MetricPage: numbers of several processes in one piece of memory, a row for each of them."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Self

ROW_BYTES = 64 << 10
_ITEM = 8  # bytes of a float64


class MetricPage:
    """`rows` rows of float64; row i belongs to the process with the index i and only it writes.

    A reader may see a number that is about to change, never a torn one: aligned eight bytes are
    written at once. Numbers of a process that has ended stay, so that sums never fall.
    """

    def __init__(self, memory: mmap.mmap | bytearray, rows: int, fd: int | None = None) -> None:
        self._view = memoryview(memory).cast("d")
        self.num_rows = rows
        self.fd = fd  # None: not shared

    @classmethod
    def private(cls) -> Self:
        """One row for one process."""
        return cls(bytearray(ROW_BYTES), 1)

    @classmethod
    def create(cls, rows: int) -> Self:
        """A page to share: child processes inherit `fd`. It has no name, so nothing is left."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("octavo-metrics")
        else:
            with tempfile.TemporaryFile() as file:
                fd = os.dup(file.fileno())
        os.ftruncate(fd, rows * ROW_BYTES)
        return cls.attach(fd, rows)

    @classmethod
    def attach(cls, fd: int, rows: int) -> Self:
        """The page behind a descriptor."""
        return cls(mmap.mmap(fd, rows * ROW_BYTES), rows, fd)

    def row(self, index: int) -> memoryview[float]:
        """All numbers of one process."""
        width = ROW_BYTES // _ITEM
        return self._view[index * width : (index + 1) * width]


class MetricRows:
    """Hands out places in every row of a page, in the same order in every process."""

    def __init__(self, page: MetricPage, own: int) -> None:
        self._page = page
        self._own = own
        self._used = 0

    def take(self, count: int) -> MetricCells:
        """The next `count` numbers."""
        begin, self._used = self._used, self._used + count
        if self._used * _ITEM > ROW_BYTES:
            raise ValueError(f"{self._used} metrics do not fit into {ROW_BYTES} bytes")
        rows = [self._page.row(i)[begin : self._used] for i in range(self._page.num_rows)]
        return MetricCells(rows, self._own)


class MetricCells:
    """Some numbers: `own` is what this process writes, `totals` what all of them come to."""

    def __init__(self, rows: list[memoryview[float]], own: int) -> None:
        self._rows = rows
        self.own = rows[own]

    def totals(self) -> list[float]:
        """The sum over all processes, number by number."""
        return [sum(values) for values in zip(*self._rows, strict=True)]

    def total(self) -> float:
        """The sum of the first number."""
        return sum(row[0] for row in self._rows)
