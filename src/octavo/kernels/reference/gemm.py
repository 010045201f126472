"""Matrix products in plain PyTorch; float32 weights are repacked by oneDNN on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from octavo.utils.misc import round_up

# Rows of one product. Larger inputs are cut: a row costs the same from here on, and every row
# count oneDNN has seen keeps about 0.3 MB of generated code per weight shape.
_MAX_ROWS = 256
_PROBE_ROWS = 8


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x[T, K] @ weight[N, K].T + bias[N]."""
    return F.linear(x, weight, bias)


class PlainLinear:
    """A linear kernel with its weight and bias, which stay the caller's."""

    nbytes = 0

    def __init__(
        self,
        kernel: Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor],
        weight: torch.Tensor,
        bias: torch.Tensor | None,
    ) -> None:
        self._kernel = kernel
        self._weight = weight
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, K] -> [T, N]."""
        return self._kernel(x, self._weight, self._bias)


class PackedLinear:
    """A float32 product over oneDNN's blocked copy of the weight.

    Two to four times as fast as F.linear up to 64 rows and never slower, and its sums over K run
    in one order whatever the number of rows, so a row's result does not depend on its
    neighbours. The exception found (one row and a long K on AVX-512) is avoided by computing a
    second row, after a test on the weight itself.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._packed: Any = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._bias = bias
        self.out_features, self.in_features = weight.shape
        self.nbytes = weight.numel() * weight.itemsize
        self._min_rows = self._smallest_exact_rows()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, K] -> [T, N]."""
        rows = x.shape[0]
        if rows > _MAX_ROWS:
            out = x.new_empty(rows, self.out_features)
            for part, place in zip(x.split(_MAX_ROWS), out.split(_MAX_ROWS), strict=True):
                place.copy_(self(part))
            return out
        padded = self._padded(rows)
        if padded == rows:
            return self.product(x)
        # Rows are independent: what is in the extra ones doesn't matter.
        wide = x.new_empty(padded, self.in_features)
        wide[:rows] = x
        return self.product(wide)[:rows]

    def _padded(self, rows: int) -> int:
        """Few distinct row counts, with little waste."""
        if rows <= 16:
            return max(rows, self._min_rows)
        return round_up(rows, 8 if rows <= 64 else 16)

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """The library's product, of exactly the rows of x[T, K] -> [T, N]."""
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._packed, self._bias, "none", [], ""
        )
        return out

    def _smallest_exact_rows(self) -> int:
        probe = torch.linspace(-1.0, 1.0, _PROBE_ROWS * self.in_features).view(_PROBE_ROWS, -1)
        expected = self.product(probe)[:1]
        exact = (n for n in (1, 2, 4) if torch.equal(self.product(probe[:n])[:1], expected))
        return next(exact, 1)


def prepare_linear(weight: torch.Tensor, bias: torch.Tensor | None) -> PlainLinear | PackedLinear:
    """The fastest exact product with this weight; see PrepareLinear."""
    if weight.device.type == "cpu" and weight.dtype == torch.float32 and _has_packing():
        return PackedLinear(weight.detach(), None if bias is None else bias.detach())
    return PlainLinear(linear, weight, bias)


def _has_packing() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(
        torch.ops.mkldnn, "_reorder_linear_weight"
    )
