"""Packed weights in plain PyTorch: unpacked for every product, a few outputs at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from octavo.checkpoints.group_codes import SPAN, GroupCodes, Minimum

_UNPACKED = 1 << 20  # weights that exist in float32 at a time
_WIDEST = 32767


def rounded(x: torch.Tensor) -> torch.Tensor:
    """x[T, K] as the products see it: 16-bit integers times a scale per SPAN inputs."""
    groups = torch.unflatten(x, -1, (-1, SPAN))
    scale = groups.abs().amax(-1, keepdim=True) / _WIDEST
    codes = (groups / scale.where(scale > 0, 1.0)).round()
    return (codes * scale).flatten(-2)


class TorchPart:
    """Codes (two of 4 bits a byte), scales and minimums as tensors, one output a line."""

    def __init__(self, codes: GroupCodes) -> None:
        self.shape = codes.shape
        self._form = codes.form
        stored = torch.from_numpy(codes.codes).contiguous()
        if codes.form.bits == 4:
            stored = stored[:, 0::2] | stored[:, 1::2] << 4
        self._codes = stored
        self._scales = torch.from_numpy(codes.scales).contiguous()
        self._minimums = (
            None if codes.minimums is None else torch.from_numpy(codes.minimums).contiguous()
        )
        kept = (self._codes, self._scales, self._minimums)
        self.nbytes = sum(tensor.nbytes for tensor in kept if tensor is not None)

    def weights(self, outputs: slice | torch.Tensor) -> torch.Tensor:
        """Float32 weights of some outputs, [n, K]."""
        codes = self._codes[outputs]
        if self._form.bits == 4:
            codes = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)
        scales = self._scales[outputs].float()[..., None]
        weights = torch.unflatten(codes, -1, (-1, self._form.group)) * scales
        if self._minimums is not None:
            weights += self._minimums[outputs].float()[..., None]
        elif self._form.minimum is Minimum.MINUS_EIGHT_SCALES:
            weights -= 8 * scales
        return weights.flatten(-2)


class TorchPackedLinear:
    """x @ weight.T + bias over one or several parts."""

    def __init__(
        self, parts: Sequence[tuple[int, TorchPart]], bias: torch.Tensor | None, num_out: int
    ) -> None:
        self._parts = tuple(parts)
        self._bias = bias
        self._num_out = num_out
        self.nbytes = sum(part.nbytes for _, part in parts)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, K] float32 -> [T, N]; columns that no part has are undefined."""
        x = rounded(x)
        out = x.new_empty(x.shape[0], self._num_out)
        step = max(_UNPACKED // x.shape[1], 1)
        for first, part in self._parts:
            num_rows = part.shape[0]
            for begin in range(0, num_rows, step):
                end = min(begin + step, num_rows)
                product = F.linear(x, part.weights(slice(begin, end)))
                out[:, first + begin : first + end] = product
        return out if self._bias is None else out + self._bias


class TorchPacked:
    """See PackedKernels."""

    name = "PyTorch's"

    def pack(self, codes: GroupCodes) -> TorchPart:
        """Keep a weight as tensors."""
        return TorchPart(codes)

    def bind(
        self, parts: Sequence[tuple[int, TorchPart]], bias: torch.Tensor | None, num_out: int
    ) -> TorchPackedLinear:
        """A product with num_out columns; parts are (first column, part)."""
        return TorchPackedLinear(parts, bias, num_out)

    def lookup(self, part: TorchPart, ids: torch.Tensor) -> torch.Tensor:
        """Weights of the outputs ids[T] -> [T, K] float32."""
        return part.weights(ids.to(torch.int64))
