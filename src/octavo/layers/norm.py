"""Norms of the hidden size, alone or with the residual sum before them."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import nn

from octavo.layers.context import LayerContext


class Norm(Protocol):
    """A module that normalizes the last dimension."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, H] -> [T, H]."""
        ...

    def add(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(norm of x + residual, x + residual), both [T, H]; may overwrite `residual`."""
        ...


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension."""

    def __init__(self, context: LayerContext, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = context.parameter(size)
        self._norm = context.kernels.rms_norm
        self._add_norm = context.kernels.fused_add_rms_norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, H] -> [T, H]."""
        return self._norm(x, self.weight, self.eps)

    def add(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(norm of x + residual, x + residual), both [T, H]; may overwrite `residual`."""
        return self._add_norm(x, residual, self.weight, self.eps)


class OffsetRMSNorm(RMSNorm):
    """x / rms(x) * (1 + weight), as Gemma's: checkpoints hold what is added to 1.

    The parameter is 1 + weight in float32, for the sum has more digits than 16-bit types.
    """

    def __init__(self, context: LayerContext, size: int, eps: float) -> None:
        super().__init__(context, size, eps)
        data = torch.empty(size, dtype=torch.float32, device=context.device)
        self.weight = nn.Parameter(data, requires_grad=False)

    def shard_shapes(self, param: str) -> list[tuple[int, ...]]:
        """The checkpoint's shape."""
        return [tuple(self.weight.shape)]

    def load_shard(self, param: str, index: int, tensor: torch.Tensor) -> None:
        """Copy the weight, one added."""
        self.weight.data.copy_(tensor.float() + 1.0)


class LayerNorm(nn.Module):
    """(x - mean) / deviation * weight + bias over the last dimension (arXiv 1607.06450)."""

    def __init__(self, context: LayerContext, size: int, eps: float, *, bias: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.weight = context.parameter(size)
        self.bias = context.parameter(size) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, H] -> [T, H]."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)

    def add(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(norm of x + residual, x + residual), both [T, H]."""
        total = x + residual
        return self(total), total


class NoNorm(nn.Module):
    """In the place of a norm: the sum alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x as it is."""
        return x

    def add(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x + residual, twice."""
        total = x + residual
        return total, total
