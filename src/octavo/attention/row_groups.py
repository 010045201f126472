"""RowGroup: rows of like length, padded to one shape, and where their pages are in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

# Keys of shorter sequences are padded up to this: one call for all costs less than one per class.
SHORT = 256


@dataclass(frozen=True)
class StepRows:
    """The rows of a step on the host; arrays are [R]."""

    starts: IntArray  # first token in the step
    query_lens: IntArray  # tokens in the step, 0 for padding
    seq_lens: IntArray  # tokens of the sequence, this step's included
    blocks: NDArray[np.int32]  # [R, max_blocks]


@dataclass(frozen=True)
class PageLayout:
    """How keys and values of one layer lie in the cache.

    A head page is [block_size, head_size] of one KV head, keys or values; a block of the layer is
    2 * num_kv_heads of them, and the same layer's next block follows `block_stride` head pages on.
    """

    block_size: int
    num_kv_heads: int
    block_stride: int

    @classmethod
    def of(cls, kv: torch.Tensor) -> PageLayout:
        """The layout of a layer's view [num_blocks, 2, Hkv, block_size, head_size]."""
        num_kv_heads, block_size, head_size = kv.shape[2:]
        page = block_size * head_size
        if kv[0].stride() != (num_kv_heads * page, page, head_size, 1) or kv.stride(0) % page:
            raise ValueError(f"KV cache of shape {tuple(kv.shape)} has strides {kv.stride()}")
        return cls(block_size, num_kv_heads, kv.stride(0) // page)


@dataclass(frozen=True, eq=False)
class RowGroup:
    """R rows as one batch: Q queries each, L keys each, shorter rows padded at the end."""

    rows: IntArray  # [R]
    query_len: int  # Q
    key_len: int  # L, a multiple of the block size
    first_key: IntArray  # [R] position of a row's first gathered key; keys before are out of sight
    head_pages: torch.Tensor  # [2 * R * Hkv * L / block_size] int64, keys before values
    # Token rows of the gathered [2 * R * Hkv * L, head_size] that lie behind a sequence's end in
    # its own last block: what an earlier owner left there.
    stale: torch.Tensor

    @property
    def num_rows(self) -> int:
        """R."""
        return len(self.rows)


def row_groups(
    step: StepRows,
    layout: PageLayout,
    window: int | None,
    max_keys: int,
    max_scores: int,
    device: torch.device,
) -> Iterator[RowGroup]:
    """Group the rows that have tokens: decode rows (one token) and others, by powers of two.

    Padding to the longest of a group at most doubles the work beyond SHORT keys. The number of
    groups is bounded by logarithms of the lengths, not by the number of rows, as long as R * L of
    a group stays within `max_keys` and R * Q * L within `max_scores`; a larger one is cut.
    """
    oldest_query = step.seq_lens - step.query_lens
    first_block = np.zeros_like(oldest_query)
    if window is not None:
        first_block = np.maximum(oldest_query - window + 1, 0) // layout.block_size
    num_blocks = -(-step.seq_lens // layout.block_size) - first_block
    num_keys = np.maximum(num_blocks * layout.block_size, SHORT)
    classes = 64 * _log2_ceil(np.maximum(step.query_lens, 1)) + _log2_ceil(num_keys)
    classes[step.query_lens == 0] = -1
    for kind in np.unique(classes):
        if kind < 0:
            continue
        rows = np.flatnonzero(classes == kind)
        key_len = int(num_blocks[rows].max()) * layout.block_size
        query_len = int(step.query_lens[rows].max())
        at_once = max(min(max_keys, max_scores // query_len) // key_len, 1)
        for cut in range(0, len(rows), at_once):
            part = rows[cut : cut + at_once]
            yield _row_group(step, layout, part, first_block[part], num_blocks[part], device)


def _row_group(
    step: StepRows,
    layout: PageLayout,
    rows: IntArray,
    first_block: IntArray,
    num_blocks: IntArray,
    device: torch.device,
) -> RowGroup:
    block_size, num_kv_heads = layout.block_size, layout.num_kv_heads
    width = int(num_blocks.max())
    column = np.arange(width)
    used = column < num_blocks[:, None]
    columns = np.where(used, first_block[:, None] + column, 0)
    # Padding is the null block, whose content is finite.
    blocks = np.where(used, step.blocks[rows[:, None], columns], 0).astype(np.int64)
    side_and_head = np.arange(2 * num_kv_heads).reshape(2, 1, num_kv_heads, 1)
    pages = blocks[None, :, None, :] * layout.block_stride + side_and_head

    key_len = width * block_size
    ends = step.seq_lens[rows] - first_block * block_size
    tails = num_blocks * block_size - ends
    owner = np.repeat(np.arange(len(rows)), tails)
    behind = np.arange(len(owner)) - np.repeat(np.cumsum(tails) - tails, tails)
    side_row = np.arange(2)[:, None, None] * len(rows) + owner
    line = side_row * num_kv_heads + np.arange(num_kv_heads)[:, None]
    stale = line * key_len + ends[owner] + behind
    return RowGroup(
        rows=rows,
        query_len=int(step.query_lens[rows].max()),
        key_len=key_len,
        first_key=first_block * block_size,
        head_pages=torch.from_numpy(pages.reshape(-1)).to(device),
        stale=torch.from_numpy(stale.reshape(-1)).to(device),
    )


def _log2_ceil(values: IntArray) -> IntArray:
    return np.ceil(np.log2(values)).astype(np.int64)
