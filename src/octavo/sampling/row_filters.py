"""Which rows of a step use a feature: found on the host, uploaded once, kept while it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RowSubset:
    """U rows of a step and the rows of a state's tables that belong to them."""

    rows: list[int]  # on the host, ascending
    index: Tensor | None  # [U] int64; None: every row of the step, in order
    table_rows: Tensor  # [U] int64

    def take(self, values: Tensor) -> Tensor:
        """The subset's entries of something that has one per row of the step."""
        return values if self.index is None else values.index_select(0, self.index)


def upload_ints(values: Sequence[int], device: torch.device) -> Tensor:
    """[N] int64 on the device, copied without waiting for it."""
    host = torch.tensor(values, dtype=torch.int64, pin_memory=device.type != "cpu")
    return host.to(device, non_blocking=True)


def filter_rows(
    slots: list[int], users: Sequence[Mapping[int, int]], device: torch.device
) -> list[RowSubset | None]:
    """For each mapping (slot -> table row) the rows whose slots are in it; None where none is.

    All index lists travel in one copy.
    """
    found: list[list[int]] = []
    packed: list[int] = []
    for table in users:
        rows = [r for r, slot in enumerate(slots) if slot in table] if table else []
        found.append(rows)
        packed += rows
        packed += [table[slots[r]] for r in rows]
    if not packed:
        return [None] * len(found)
    sizes = [len(rows) for rows in found for _ in range(2)]
    parts = torch.split(upload_ints(packed, device), sizes)
    subsets: list[RowSubset | None] = []
    for i, rows in enumerate(found):
        index = None if len(rows) == len(slots) else parts[2 * i]
        subsets.append(RowSubset(rows, index, parts[2 * i + 1]) if rows else None)
    return subsets
