"""Part: which slice of a checkpoint tensor's dimension a rank holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from octavo.types.errors import ConfigError


@dataclass(frozen=True)
class Part:
    """Elements [start, start + size) of a dimension that has `full` in the checkpoint."""

    full: int
    start: int
    size: int

    @classmethod
    def whole(cls, full: int) -> Part:
        """Every rank holds all of it."""
        return cls(full, 0, full)

    @classmethod
    def even(cls, full: int, rank: int, num_ranks: int, what: str) -> Part:
        """Each rank holds an equal part; ConfigError names `what` if that isn't possible."""
        if full % num_ranks:
            raise ConfigError(
                f"{what}: {full} can't be divided among {num_ranks} ranks; choose a "
                "tensor_parallel_size that divides it"
            )
        size = full // num_ranks
        return cls(full, rank * size, size)


@runtime_checkable
class ShardedWeights(Protocol):
    """A module whose parameters are made of one or more checkpoint tensors, or parts of them."""

    def shard_shapes(self, param: str) -> list[tuple[int, ...]]:
        """Checkpoint shapes of the tensors that parameter `param` is made of, in order."""
        ...

    def load_shard(self, param: str, index: int, tensor: torch.Tensor) -> None:
        """Copy this rank's slice of tensor `index` of `param`; the shape has been checked."""
        ...
