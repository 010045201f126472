"""The loop over a sequence's pages of keys, for many queries of it or many rows that share it."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.kernels.softmax import attend_tile


@triton.jit
def attend_pages(
    q,
    position,
    table,
    kv_ptr,
    first_key,
    last_key,
    seq_len,
    acc,
    row_max,
    row_sum,
    head,
    stride_block,
    scale,
    soft_cap,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WINDOW: tl.constexpr,
    MASKED: tl.constexpr,
    HAS_CAP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Attend to whole tiles of keys from first_key on; unless MASKED all of them are seen.

    q[M, D] at position[M] of a sequence of seq_len tokens whose block table is at `table`.
    first_key is a multiple of BLOCK_N, and so is last_key unless MASKED. Returns the state
    (acc, row_max, row_sum), see attend_tile, with the tiles up to last_key added.
    """
    key = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, HEAD_PADDED)
    v_offset: tl.constexpr = NUM_KV_HEADS * BLOCK_SIZE * HEAD_SIZE
    # Tiles of whole pages begin where pages do: then this part of an address never changes.
    in_page = (head * BLOCK_SIZE + key % BLOCK_SIZE) * HEAD_SIZE
    pages = table + first_key // BLOCK_SIZE + key // BLOCK_SIZE
    if BLOCK_N < BLOCK_SIZE:
        pages = table + (first_key + key) // BLOCK_SIZE
    block = tl.load(pages, mask=first_key + key < seq_len, other=0)
    for start in range(first_key, last_key, BLOCK_N):
        keys = start + key
        if BLOCK_N < BLOCK_SIZE:
            in_page = (head * BLOCK_SIZE + keys % BLOCK_SIZE) * HEAD_SIZE
        k_rows = kv_ptr + block.to(tl.int64) * stride_block + in_page
        # Looked up a tile ahead, so that the load of keys need not wait for it.
        if BLOCK_N < BLOCK_SIZE:
            pages = table + (keys + BLOCK_N) // BLOCK_SIZE
        else:
            pages += BLOCK_N // BLOCK_SIZE
        if MASKED:
            block = tl.load(pages, mask=keys + BLOCK_N < seq_len, other=0)
        else:
            block = tl.load(pages, mask=start + BLOCK_N < last_key, other=0)
        k_ptrs = k_rows[:, None] + dims[None, :]
        if MASKED:
            kv_mask = (keys < seq_len)[:, None] & (dims < HEAD_SIZE)[None, :]
            k = tl.load(k_ptrs, mask=kv_mask, other=0.0)
            v = tl.load(k_ptrs + v_offset, mask=kv_mask, other=0.0)
        elif HEAD_SIZE < HEAD_PADDED:
            dim_ok = (dims < HEAD_SIZE)[None, :]
            k = tl.load(k_ptrs, mask=dim_ok, other=0.0)
            v = tl.load(k_ptrs + v_offset, mask=dim_ok, other=0.0)
        else:
            k = tl.load(k_ptrs)
            v = tl.load(k_ptrs + v_offset)
        visible = keys[None, :] <= position[:, None]
        if WINDOW > 0:
            visible &= keys[None, :] > position[:, None] - WINDOW
        acc, row_max, row_sum = attend_tile(
            q, k, v, visible, acc, row_max, row_sum, scale, soft_cap, MASKED, HAS_CAP, PRECISION
        )
    return acc, row_max, row_sum
