"""RMSNorm, alone or with the residual sum before it."""

from __future__ import annotations

import torch
from torch import nn

from octavo.layers.context import LayerContext


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
