"""TensorParallelGroup: the collectives that divided layers need, and the group of one rank."""

from __future__ import annotations

from typing import Protocol

import torch


class TensorParallelGroup(Protocol):
    """Ranks that each hold a part of every layer."""

    @property
    def rank(self) -> int:
        """This process's place, 0 to size - 1."""
        ...

    @property
    def size(self) -> int:
        """Number of ranks."""
        ...

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of x over the ranks; may be written over `x`."""
        ...

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """The ranks' x side by side along the last dimension, in rank order."""
        ...


class SingleRank:
    """A group of one: collectives return what they are given."""

    rank = 0
    size = 1

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over one rank."""
        return x

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """The parts of one rank."""
        return x
