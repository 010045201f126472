"""DeviceState: what the device knows of every slot, in one flat int32 tensor.

Keeping lengths, last tokens and block tables in one allocation means that every change the host
makes to any of them travels as (index, value) pairs in one copy and lands with one scatter.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from octavo.platforms.interface import Platform


class DeviceState:
    """Named regions of one int32 tensor, with host-side staging of changes."""

    def __init__(self, regions: dict[str, tuple[int, ...]], platform: Platform) -> None:
        self._offsets: dict[str, int] = {}
        total = 0
        for name, shape in regions.items():
            self._offsets[name] = total
            total += int(np.prod(shape))
        self.data = torch.zeros(total, dtype=torch.int32, device=platform.device)
        self._views = {
            name: self.data[offset : offset + int(np.prod(regions[name]))].view(regions[name])
            for name, offset in self._offsets.items()
        }
        self._indices: list[int] = []
        self._values: list[int] = []

    def view(self, name: str) -> torch.Tensor:
        """The region `name` in its shape."""
        return self._views[name]

    def stage(self, name: str, index: int, values: list[int]) -> None:
        """Note that `values` belong at flat position `index` of the region."""
        start = self._offsets[name] + index
        self._indices.extend(range(start, start + len(values)))
        self._values.extend(values)

    @property
    def num_staged(self) -> int:
        """Changes waiting to be taken."""
        return len(self._indices)

    def take_staged(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """The staged (indices, values), a later change of an index winning; clears the staging."""
        pairs = dict(zip(self._indices, self._values, strict=True))
        self._indices.clear()
        self._values.clear()
        count = len(pairs)
        return (
            np.fromiter(pairs.keys(), np.int32, count),
            np.fromiter(pairs.values(), np.int32, count),
        )
