"""Attention over paged keys and values, read in place by the C kernel."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from octavo.kernels.cpu.library import native_library


@dataclass(frozen=True, slots=True, eq=False)
class PagedRows:
    """R rows of a step, as CommonAttentionMetadata has them."""

    starts: torch.Tensor  # [R + 1] int32: first token of each row
    seq_lens: torch.Tensor  # [R] int32, this step's tokens included
    block_table: torch.Tensor  # [num_slots, max_blocks] int32
    slots: torch.Tensor  # [R] int64: the row's line of block_table
    num_rows: int


class PagedAttention:
    """Every token by itself: its result depends on no neighbour, and not on how it was chunked."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._attention = library.octavo_attention

    def __call__(
        self,
        q: torch.Tensor,
        kv: torch.Tensor,
        rows: PagedRows,
        scale: float,
        window: int | None,
        soft_cap: float | None,
    ) -> torch.Tensor:
        """Causal attention of q[T, Hq, D], whose heads are contiguous: [T, Hq * D].

        kv: [num_blocks, 2, Hkv, block_size, D]. Tokens of no row get zeros.
        """
        num_tokens, num_heads, head_size = q.shape
        num_kv_heads, block_size = kv.shape[2:4]
        out = torch.zeros(num_tokens, num_heads * head_size)
        failed = self._attention(
            q.data_ptr(),
            q.stride(0),
            kv.data_ptr(),
            kv.stride(0),
            rows.starts.data_ptr(),
            rows.seq_lens.data_ptr(),
            rows.block_table.data_ptr(),
            rows.block_table.stride(0),
            rows.slots.data_ptr(),
            out.data_ptr(),
            rows.num_rows,
            num_heads,
            num_kv_heads,
            head_size,
            block_size,
            scale,
            window or 0,
            soft_cap or 0.0,
        )
        if failed:
            raise MemoryError("no memory for the attention scores of a step")
        return out


def paged_attention(head_size: int) -> PagedAttention | str:
    """The kernel for heads of this size, or the reason why there is none here."""
    library = native_library()
    if library is None:
        return "the C kernels are not in use"
    lanes = library.octavo_lanes()
    if head_size % lanes:
        return f"head size {head_size} is no multiple of {lanes}"
    return PagedAttention(library)
