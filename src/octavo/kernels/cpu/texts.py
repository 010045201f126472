"""The C kernels of encoders: attention within texts, norms of sums, GELU; float32."""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Final

import torch

from octavo.kernels.cpu.library import Signatures, companion_library

_SOURCE: Final = Path(__file__).with_name("texts.c")
_SIGNATURES: Final[Signatures] = {
    "octavo_add_layer_norm": (None, (c_void_p,) * 5 + (c_int64,) * 2 + (c_float,)),
    "octavo_gelu": (None, (c_void_p, c_int64)),
    "octavo_text_attention": (
        c_int,
        (c_void_p,) * 2 + (c_int64,) * 3 + (c_float, c_void_p, c_int64, c_int64, c_void_p),
    ),
}


class TextKernels:
    """The C kernels as functions of tensors, which must be contiguous and float32."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def attention(
        self,
        qkv: torch.Tensor,
        starts: torch.Tensor,
        num_heads: int,
        scale: float,
        distance_bias: torch.Tensor | None,
        reach: int | None = None,
    ) -> torch.Tensor:
        """qkv[T, 3 * heads * D], starts[R + 1] int32 of R texts -> [T, heads * D].

        distance_bias[heads, 2 N - 1]: see EncoderAttention; reach: see EncoderParams. Raises
        MemoryError.
        """
        width = qkv.shape[1] // 3
        out = torch.empty(qkv.shape[0], width)
        span = 0 if distance_bias is None else (distance_bias.shape[1] + 1) // 2
        failed = self._library.octavo_text_attention(
            qkv.data_ptr(),
            starts.data_ptr(),
            starts.shape[0] - 1,
            num_heads,
            width // num_heads,
            scale,
            None if distance_bias is None else distance_bias.data_ptr(),
            span,
            qkv.shape[0] if reach is None else reach,
            out.data_ptr(),
        )
        if failed:
            raise MemoryError("no memory for the attention scores of a step")
        return out

    def add_layer_norm(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        eps: float,
    ) -> torch.Tensor:
        """The norm of x[T, H] + residual[T, H], times weight[H], plus bias[H]."""
        out = torch.empty_like(x)
        self._library.octavo_add_layer_norm(
            x.data_ptr(),
            residual.data_ptr(),
            weight.data_ptr(),
            bias.data_ptr(),
            out.data_ptr(),
            *x.shape,
            eps,
        )
        return out

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        """x (1 + erf(x / sqrt 2)) / 2 of every element in its place, erf to within 1.5e-7."""
        self._library.octavo_gelu(x.data_ptr(), x.numel())
        return x


@functools.cache
def text_kernels() -> TextKernels | None:
    """The kernels, or None where PyTorch's are to be used, as for the others."""
    library = companion_library(_SOURCE, _SIGNATURES, "encoders run PyTorch's kernels")
    return None if library is None else TextKernels(library)
