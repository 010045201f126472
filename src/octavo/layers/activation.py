"""Gated activations."""

from __future__ import annotations

import torch
from torch import nn

from octavo.layers.context import LayerContext


class SiluAndMul(nn.Module):
    """silu(gate) * up of the two halves [gate, up] of the last dimension."""

    def __init__(self, context: LayerContext) -> None:
        super().__init__()
        self._kernel = context.kernels.silu_and_mul

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, 2 I] -> [T, I]."""
        return self._kernel(x)
