"""PackedKernels: how weights that stay packed are kept, multiplied and looked up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from octavo.checkpoints.group_codes import GroupCodes


class PackedPart(Protocol):
    """Outputs of a weight in the form that its kernels read."""

    nbytes: int

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)."""
        ...


class PackedLinear(Protocol):
    """A BoundLinear over packed parts."""

    nbytes: int  # of all parts

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, K] float32 -> [T, N]; columns that no part has are undefined."""
        ...


class PackedKernels(Protocol):
    """The implementation for a kind of device."""

    name: str

    def pack(self, codes: GroupCodes) -> PackedPart:
        """Bring a weight into its final form."""
        ...

    def bind(
        self, parts: Sequence[tuple[int, Any]], bias: torch.Tensor | None, num_out: int
    ) -> PackedLinear:
        """A product with num_out columns; parts are (first column, what pack() made)."""
        ...

    def lookup(self, part: Any, ids: torch.Tensor) -> torch.Tensor:
        """Weights of the outputs ids[T] -> [T, K] float32."""
        ...
