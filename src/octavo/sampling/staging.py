"""Staging: the host's changes to device tables, gathered and copied as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Write = Callable[[Tensor], None]

# What travels: 32-bit integers, or floats as their bits.
Words = npt.NDArray[np.int32] | npt.NDArray[np.float32] | Sequence[int]


class Staging:
    """Queues small arrays and carries them to the device in a single copy.

    A device table is never written from the host while a step that reads it may be running:
    a write is queued behind the steps already launched, in the order of the calls.
    """

    def __init__(self, device: torch.device, graph_rows: int = 0) -> None:
        """`graph_rows`: rows of the tables that captured graphs read; 0 where there are none."""
        self.device = device
        self.graph_rows = graph_rows
        self._arrays: list[npt.NDArray[np.int32]] = []
        self._writes: list[Write] = []

    def put(self, values: Words, write: Write) -> None:
        """Queue an array; `write` gets it on the device as int32 [N].

        Integers that need more than 32 bits raise OverflowError here, in the caller's hands.
        """
        array = values if isinstance(values, np.ndarray) else np.array(values, np.int32)
        self._arrays.append(array.reshape(-1).view(np.int32))
        self._writes.append(write)

    def flush(self) -> None:
        """Copy what is queued, then run its writes; nothing happens when nothing is queued."""
        if not self._writes:
            return
        arrays, writes = self._arrays, self._writes
        self._arrays, self._writes = [], []
        sizes = [len(array) for array in arrays]
        # A fresh pinned buffer each time: the allocator reuses one only after its copy is done.
        host = torch.empty(sum(sizes), dtype=torch.int32, pin_memory=self.device.type != "cpu")
        np.concatenate(arrays, out=host.numpy())
        parts = torch.split(host.to(self.device, non_blocking=True), sizes)
        for part, write in zip(parts, writes, strict=True):
            write(part)
