"""What encoders' layers do by the C kernels where they are there, and their rotation."""

from __future__ import annotations

from collections.abc import Callable

import torch

from octavo.kernels.cpu.texts import TextKernels, text_kernels
from octavo.kernels.reference.elementwise import rotate_pairs
from octavo.layers.activation import activation
from octavo.layers.context import LayerContext
from octavo.layers.norm import LayerNorm


class SumNorm(LayerNorm):
    """A LayerNorm with bias, mostly of sums."""

    def __init__(self, context: LayerContext, size: int, eps: float) -> None:
        super().__init__(context, size, eps)
        self._kernels = _kernels(context)

    def of_sum(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """The norm of x[T, H] + residual[T, H], [T, H]."""
        if self._kernels is None or self.bias is None:
            normed: torch.Tensor = self(x + residual)
            return normed
        return self._kernels.add_layer_norm(x, residual, self.weight, self.bias, self.eps)


def rotate_texts(qkv: torch.Tensor, angles: torch.Tensor, head_size: int) -> None:
    """Rotate queries and keys of qkv[T, 3 * heads * D] in place; angles[T, D]: see cos_sin."""
    heads = qkv.view(qkv.shape[0], -1, head_size)
    rotate_pairs(heads[:, : heads.shape[1] // 3 * 2], angles, is_neox=True)


def text_activation(context: LayerContext, name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """The function of a name in a config. Raises ConfigError."""
    kernels = _kernels(context)
    return kernels.gelu if name == "gelu" and kernels is not None else activation(context, name)


def _kernels(context: LayerContext) -> TextKernels | None:
    native = context.device.type == "cpu" and context.dtype == torch.float32
    return text_kernels() if native else None
