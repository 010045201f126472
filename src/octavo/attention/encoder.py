"""TextAttention: attention within each text of a step, over queries, keys and values as they are.

Texts lie one after the other without padding; those of like length are computed as one batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from octavo.attention.interface import EncoderParams
from octavo.kernels.cpu.texts import TextKernels

# Texts of a batch are padded to the longest, which is at most so many times the shortest.
_MAX_STRETCH = 1.25
_MAX_SCORES = 16 << 20  # elements of a batch's scores
_BAND_QUERIES = 256  # of layers that see so far: queries of one product, which share their keys


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """R texts of up to L tokens."""

    num_rows: int
    length: int
    places: torch.Tensor | slice  # [R * L]: the token at each place, a text's last one repeated
    real: torch.Tensor | slice  # places whose token is no padding
    tokens: torch.Tensor | slice  # these tokens, in the same order
    mask: torch.Tensor | None  # [R, 1, 1, L] additive; None: no padding


class NativeTextAttention:
    """One step's texts, by the C kernel: float32 on a CPU; an EncoderAttention."""

    def __init__(self, kernels: TextKernels, query_start_loc: NDArray[np.int32]) -> None:
        """query_start_loc[R + 1]: where texts begin and end among the step's tokens."""
        self._kernels = kernels
        self._starts = torch.from_numpy(np.ascontiguousarray(query_start_loc))

    def __call__(
        self,
        qkv: torch.Tensor,
        params: EncoderParams,
        distance_bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See EncoderAttention."""
        bias = None if distance_bias is None else distance_bias.contiguous()
        return self._kernels.attention(
            qkv, self._starts, params.num_heads, params.scale, bias, params.reach
        )


class TextAttention:
    """One step's texts in plain PyTorch, on any device; an EncoderAttention."""

    def __init__(
        self, query_start_loc: NDArray[np.int32], num_heads: int, device: torch.device
    ) -> None:
        """query_start_loc[R + 1]: where texts begin and end among the step's tokens."""
        starts = query_start_loc.astype(np.int64)
        self._device = device
        self._batches = [
            self._batch(starts, rows) for rows in _like_rows(np.diff(starts), num_heads)
        ]

    def __call__(
        self,
        qkv: torch.Tensor,
        params: EncoderParams,
        distance_bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See EncoderAttention."""
        out = qkv.new_empty(qkv.shape[0], qkv.shape[1] // 3)
        for batch in self._batches:
            q, k, v = (
                qkv[batch.places]
                .view(batch.num_rows, batch.length, 3, params.num_heads, params.head_size)
                .permute(2, 0, 3, 1, 4)
            )
            mask = batch.mask
            if distance_bias is not None:
                bias = _bias_of(distance_bias, batch.length)
                mask = bias if mask is None else bias + mask
            rows = _attend(q, k, v, mask, params)
            out[batch.tokens] = rows.transpose(1, 2).reshape(-1, out.shape[1])[batch.real]
        return out

    def _batch(self, starts: NDArray[np.int64], rows: NDArray[np.int64]) -> _Batch:
        first, lengths = starts[rows], starts[rows + 1] - starts[rows]
        longest = int(lengths.max())
        if len(rows) == 1:
            tokens = slice(int(first[0]), int(first[0]) + longest)
            return _Batch(1, longest, tokens, slice(None), tokens, None)
        at = np.arange(longest)
        places = first[:, None] + np.minimum(at, lengths[:, None] - 1)
        is_real = at < lengths[:, None]
        index = self._index(places.reshape(-1))
        if is_real.all():
            return _Batch(len(rows), longest, index, slice(None), index, None)
        mask = torch.from_numpy(np.where(is_real, np.float32(0), np.float32(-np.inf)))
        return _Batch(
            len(rows),
            longest,
            index,
            real=self._index(np.flatnonzero(is_real)),
            tokens=self._index(places[is_real]),
            mask=mask[:, None, None].to(self._device),
        )

    def _index(self, values: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device)


def _like_rows(lengths: NDArray[np.int64], num_heads: int) -> list[NDArray[np.int64]]:
    """Rows in batches of like length, whose scores stay within bounds."""
    order = np.argsort(lengths, kind="stable")
    batches: list[NDArray[np.int64]] = []
    begin = 0
    for end in range(1, len(order) + 1):
        if end < len(order):
            length = int(lengths[order[end]])
            scores = (end + 1 - begin) * num_heads * length * length
            if length <= _MAX_STRETCH * lengths[order[begin]] and scores <= _MAX_SCORES:
                continue
        batches.append(order[begin:end])
        begin = end
    return batches


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    params: EncoderParams,
) -> torch.Tensor:
    """q, k, v[R, heads, L, D], mask broadcast to their scores -> [R, heads, L, D]."""
    length, reach = q.shape[2], params.reach
    if mask is not None:
        mask = mask.to(q.dtype)
    if reach is None or reach >= length - 1:
        return F.scaled_dot_product_attention(q, k, v, mask, scale=params.scale)
    out = torch.empty_like(q)
    at = torch.arange(length, device=q.device)
    for begin in range(0, length, _BAND_QUERIES):
        end = min(begin + _BAND_QUERIES, length)
        first, last = max(begin - reach, 0), min(end + reach, length)
        sees = (at[first:last] - at[begin:end, None]).abs() <= reach
        band = torch.zeros(sees.shape, dtype=q.dtype, device=q.device)
        band.masked_fill_(~sees, -torch.inf)
        if mask is not None:
            rows = mask[:, :, begin:end] if mask.shape[2] > 1 else mask
            band = band + rows[..., first:last]
        keys = slice(first, last)
        out[:, :, begin:end] = F.scaled_dot_product_attention(
            q[:, :, begin:end], k[:, :, keys], v[:, :, keys], band, scale=params.scale
        )
    return out


def _bias_of(table: torch.Tensor, length: int) -> torch.Tensor:
    """[1, heads, length, length] of a table by distance."""
    at = torch.arange(length, device=table.device)
    distance = at - at[:, None] + (table.shape[1] - 1) // 2
    return table[:, distance].unsqueeze(0)
