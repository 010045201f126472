"""NativeLinear: a product with packed float32 weights, by the C kernels."""

from __future__ import annotations

import ctypes

import torch


class NativeLinear:
    """x @ weight.T + bias from panels of outputs, each row's sums in one order for any batch.

    Streams the weight at the memory's speed up to about 12 rows and is limited by arithmetic
    above; a row's result does not depend on its neighbours.
    """

    def __init__(
        self, library: ctypes.CDLL, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> None:
        self._linear = library.octavo_linear
        self._out_features, self._in_features = weight.shape
        self._packed = torch.empty(weight.numel())
        weight = weight.contiguous()
        library.octavo_pack(
            weight.data_ptr(), self._packed.data_ptr(), self._out_features, self._in_features
        )
        self._bias = None if bias is None else bias.contiguous()
        self._bias_address = None if self._bias is None else self._bias.data_ptr()
        self.nbytes = self._packed.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, K] -> [T, N]."""
        x = x.contiguous()
        rows = x.shape[0]
        out = torch.empty(rows, self._out_features)
        self._linear(
            x.data_ptr(),
            self._packed.data_ptr(),
            self._bias_address,
            out.data_ptr(),
            rows,
            self._out_features,
            self._in_features,
        )
        return out

    def description(self) -> tuple[int, int | None, int, int]:
        """linear_t of products.h: the addresses of weight and bias, N and K."""
        address = self._packed.data_ptr()
        return address, self._bias_address, self._out_features, self._in_features
