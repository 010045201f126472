"""Paged attention for rows of few query tokens: balanced split-KV over a constant grid.

The keys of all rows form one line of tiles, cut into equal shares, one per program of a grid whose
size depends on the device alone (see decode_map), so the kernel fits in a CUDA graph and no program
waits for a longer row than the others. A row cut by a share's end leaves partial results, and the
last program to finish one of its parts merges them in the order of the keys. Rows that begin with
the same blocks read those together first (see shared_tiles).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from octavo.kernels.decode_map import (
    KEYS_MASK,
    LAST_TILE,
    MIN_DOT_ROWS,
    RECORD,
    ROW_SHIFT,
    DecodeMap,
)
from octavo.kernels.shared_tiles import attend_shared, is_lone, settle_shared
from octavo.kernels.softmax import LOG2E, add_sinks, attend_tile
from octavo.utils.misc import cdiv, next_power_of_2

_MERGE_CHUNK = 16  # partial results merged together


@triton.jit
def _merge_parts(
    partials_ptr,
    partial_stats_ptr,
    first_part,
    num_parts,
    head,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    QUERIES: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Combine a row's partial results in order -> (acc[Q, D], row_max[Q], row_sum[Q])."""
    query = tl.arange(0, QUERIES)
    dims = tl.arange(0, HEAD_PADDED)
    acc = tl.zeros((QUERIES, HEAD_PADDED), tl.float32)
    row_max = tl.full((QUERIES,), float("-inf"), tl.float32)
    row_sum = tl.zeros((QUERIES,), tl.float32)
    for start in range(0, num_parts, CHUNK):
        index = start + tl.arange(0, CHUNK)
        live = index < num_parts
        part = (first_part + index) * NUM_KV_HEADS + head
        stats = partial_stats_ptr + part[:, None] * (2 * QUERIES) + query[None, :]
        # Other programs wrote these: read them from L2, not from this multiprocessor's L1.
        part_max = tl.load(stats, mask=live[:, None], other=float("-inf"), cache_modifier=".cg")
        part_sum = tl.load(stats + QUERIES, mask=live[:, None], other=0.0, cache_modifier=".cg")
        values = tl.load(
            partials_ptr
            + part[:, None, None] * (QUERIES * HEAD_PADDED)
            + query[None, :, None] * HEAD_PADDED
            + dims[None, None, :],
            mask=live[:, None, None],
            other=0.0,
            cache_modifier=".cg",
        )
        new_max = tl.maximum(row_max, tl.max(part_max, axis=0))
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)
        decay = tl.exp2(row_max - shift)
        weights = tl.exp2(part_max - shift[None, :])
        row_sum = row_sum * decay + tl.sum(part_sum * weights, axis=0)
        acc = acc * decay[:, None] + tl.sum(values * weights[:, :, None], axis=0)
        row_max = new_max
    return acc, row_max, row_sum


@triton.jit
def _store_rows(
    out_ptr,
    sinks_ptr,
    acc,
    row_max,
    row_sum,
    begin_ptr,
    head,
    stride_out,
    GROUP: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    QUERIES: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """Normalize acc[Q, D] and write it: query j is token j // GROUP, query head j % GROUP.

    begin_ptr: the row's first token and, behind it, the next row's.
    """
    query_begin = tl.load(begin_ptr)
    num_queries = (tl.load(begin_ptr + 1) - query_begin) * GROUP
    query = tl.arange(0, QUERIES)
    dims = tl.arange(0, HEAD_PADDED)
    q_head = head * GROUP + query % GROUP
    if HAS_SINKS:
        sink = tl.load(sinks_ptr + q_head).to(tl.float32) * 1.4426950408889634
        decay, row_sum = add_sinks(row_max, row_sum, sink)
        acc = acc * decay[:, None]
    out = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    token = query_begin + query // GROUP
    rows = out_ptr + token.to(tl.int64) * stride_out + q_head * HEAD_SIZE
    mask = (query < num_queries)[:, None] & (dims < HEAD_SIZE)[None, :]
    tl.store(rows[:, None] + dims[None, :], out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit(
    do_not_specialize=["capacity", "num_rows", "num_tokens"],
    do_not_specialize_on_alignment=[
        "query_start_loc_ptr",
        "tile_ends_ptr",
        "tiles_ptr",
        "tile_blocks_ptr",
        "arrivals_ptr",
        "slots_ptr",
        "shared_ptr",
    ],
)
def _paged_decode_kernel(
    q_ptr,
    kv_ptr,
    out_ptr,
    sinks_ptr,
    query_start_loc_ptr,
    tile_ends_ptr,
    tiles_ptr,
    tile_blocks_ptr,
    arrivals_ptr,
    partials_ptr,
    partial_stats_ptr,
    slots_ptr,
    block_table_ptr,
    shared_ptr,
    shared_partials_ptr,
    shared_stats_ptr,
    capacity,
    num_rows,
    num_tokens,
    stride_q,
    stride_out,
    stride_block,
    stride_table,
    scale,
    soft_cap,
    GROUP: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    QUERIES: tl.constexpr,
    STORED_QUERIES: tl.constexpr,
    MAX_QUERY_LEN: tl.constexpr,
    TILE: tl.constexpr,
    WINDOW: tl.constexpr,
    MERGE_CHUNK: tl.constexpr,
    HAS_CAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    SHARED_ROWS: tl.constexpr,
    SHARED_QUERIES: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Program (head, share): the share's tiles of one KV head, in one loop over all its rows.

    QUERIES is the dot's height, STORED_QUERIES (<= QUERIES) covers the real queries of any row.
    SHARED_ROWS > 0: rows in shared tiles only have tiles behind their prefix here, and all of
    their results are partial.
    """
    head = tl.program_id(0)
    share = tl.program_id(1)
    num_shares = tl.num_programs(1)
    total = tl.load(tile_ends_ptr + num_rows - 1)
    num_shared = 0
    if SHARED_ROWS > 0:
        num_shared = tl.load(shared_ptr)
    per_share = (total + num_shares - 1) // num_shares
    begin = share * per_share
    stop = tl.minimum(begin + per_share, total)
    query = tl.arange(0, QUERIES)
    dims = tl.arange(0, HEAD_PADDED)
    dim_ok = dims < HEAD_SIZE
    key = tl.arange(0, TILE)
    BLOCKS: tl.constexpr = TILE // BLOCK_SIZE
    in_page = (head * BLOCK_SIZE + key % BLOCK_SIZE) * HEAD_SIZE
    v_offset: tl.constexpr = NUM_KV_HEADS * BLOCK_SIZE * HEAD_SIZE

    some = begin < stop
    record = tiles_ptr + begin * RECORD
    tile_of = tl.load(record, mask=some, other=0)
    token = tl.load(record + 1, mask=some, other=0)
    ahead_of = tl.load(record + 2, mask=some, other=0)
    block = tl.load(tile_blocks_ptr + begin * BLOCKS + key // BLOCK_SIZE, mask=some, other=0)
    first_row = tile_of >> ROW_SHIFT
    # Asked only here, so that a step without shared tiles has its own first tile under way.
    if SHARED_ROWS > 0 and num_shared > 0:
        attend_shared(
            q_ptr, kv_ptr, query_start_loc_ptr, slots_ptr, block_table_ptr, shared_ptr,
            num_shared, shared_partials_ptr, shared_stats_ptr, capacity, head, share, num_shares,
            stride_q, stride_block, stride_table, scale, soft_cap, GROUP, NUM_KV_HEADS, HEAD_SIZE,
            HEAD_PADDED, BLOCK_SIZE, SHARED_QUERIES, TILE, HAS_CAP, PRECISION,
        )  # fmt: skip
    acc = tl.zeros((QUERIES, HEAD_PADDED), tl.float32)
    row_max = tl.full((QUERIES,), float("-inf"), tl.float32)
    row_sum = tl.zeros((QUERIES,), tl.float32)
    for tile in range(begin, stop):
        row = tile_of >> ROW_SHIFT
        # Queries that the row doesn't have are some other row's; nobody reads what they give.
        tokens = tl.minimum(token + query // GROUP, num_tokens - 1).to(tl.int64)
        q_rows = q_ptr + tokens * stride_q + (head * GROUP + query % GROUP) * HEAD_SIZE
        q = tl.load(q_rows[:, None] + dims[None, :], mask=dim_ok[None, :], other=0.0)
        kv_rows = kv_ptr + block.to(tl.int64) * stride_block + in_page
        kv_ptrs = kv_rows[:, None] + dims[None, :]
        there = key < (tile_of & KEYS_MASK)
        ends = ((tile_of & LAST_TILE) != 0) | (tile + 1 == stop)
        kv_mask = there[:, None] & dim_ok[None, :]
        k = tl.load(kv_ptrs, mask=kv_mask, other=0.0)
        v = tl.load(kv_ptrs + v_offset, mask=kv_mask, other=0.0)
        if MAX_QUERY_LEN == 1 and WINDOW == 0:
            visible = there[None, :]
        else:
            last = ahead_of + query // GROUP
            visible = key[None, :] <= last[:, None]
            if WINDOW > 0:
                visible &= key[None, :] > last[:, None] - WINDOW
        # The next tile is looked up now, so that loading its keys need not wait for that.
        more = tile + 1 < stop
        record = tiles_ptr + (tile + 1) * RECORD
        tile_of = tl.load(record, mask=more, other=0)
        token = tl.load(record + 1, mask=more, other=0)
        ahead_of = tl.load(record + 2, mask=more, other=0)
        blocks = tile_blocks_ptr + (tile + 1) * BLOCKS + key // BLOCK_SIZE
        block = tl.load(blocks, mask=more, other=0)
        acc, row_max, row_sum = attend_tile(
            q, k, v, visible, acc, row_max, row_sum, scale, soft_cap, True, HAS_CAP, PRECISION
        )
        if ends:
            row_end = tl.load(tile_ends_ptr + row)
            row_begin = tl.load(tile_ends_ptr + row - 1, mask=row > 0, other=0)
            whole = (row_begin >= begin) & (row_end <= stop)
            if SHARED_ROWS > 0:
                whole &= is_lone(shared_ptr, num_shared, capacity, row, NUM_KV_HEADS)
            if whole:
                _store_rows(
                    out_ptr, sinks_ptr, acc, row_max, row_sum, query_start_loc_ptr + row, head,
                    stride_out, GROUP, HEAD_SIZE, HEAD_PADDED, QUERIES, HAS_SINKS,
                )  # fmt: skip
            else:
                # share + row counts the cuts before this part, so it numbers the parts.
                part = (share + row) * NUM_KV_HEADS + head
                stored = query < STORED_QUERIES
                stats = partial_stats_ptr + part * (2 * STORED_QUERIES) + query
                tl.store(stats, row_max, mask=stored)
                tl.store(stats + STORED_QUERIES, row_sum, mask=stored)
                parts = partials_ptr + (part * STORED_QUERIES + query[:, None]) * HEAD_PADDED
                tl.store(parts + dims[None, :], acc, mask=stored[:, None])
            acc = tl.zeros((QUERIES, HEAD_PADDED), tl.float32)
            row_max = tl.full((QUERIES,), float("-inf"), tl.float32)
            row_sum = tl.zeros((QUERIES,), tl.float32)
    last_row = tl.load(tiles_ptr + (stop - 1) * RECORD, mask=some, other=0) >> ROW_SHIFT

    # All threads have written before one of them announces it. A share cuts two rows at most.
    tl.debug_barrier()
    for end in tl.static_range(2):
        cut_row = last_row if end == 1 else first_row
        row_end = tl.load(tile_ends_ptr + cut_row, mask=some, other=0)
        row_begin = tl.load(tile_ends_ptr + cut_row - 1, mask=cut_row > 0, other=0)
        once = some & ((end == 0) | (first_row != last_row))
        if SHARED_ROWS > 0:
            once &= is_lone(shared_ptr, num_shared, capacity, cut_row, NUM_KV_HEADS)
        if once & ((row_begin < begin) | (row_end > stop)):
            first_share = row_begin // per_share
            num_parts = (row_end - 1) // per_share - first_share + 1
            arrived = tl.atomic_add(
                arrivals_ptr + cut_row * NUM_KV_HEADS + head, 1, sem="acq_rel", scope="gpu"
            )
            if arrived == num_parts - 1:
                merged, merged_max, merged_sum = _merge_parts(
                    partials_ptr, partial_stats_ptr, first_share + cut_row, num_parts, head,
                    NUM_KV_HEADS, HEAD_PADDED, STORED_QUERIES, MERGE_CHUNK,
                )  # fmt: skip
                _store_rows(
                    out_ptr, sinks_ptr, merged, merged_max, merged_sum,
                    query_start_loc_ptr + cut_row, head, stride_out, GROUP, HEAD_SIZE,
                    HEAD_PADDED, STORED_QUERIES, HAS_SINKS,
                )  # fmt: skip
                tl.store(arrivals_ptr + cut_row * NUM_KV_HEADS + head, 0)
    if SHARED_ROWS > 0 and num_shared > 0:
        settle_shared(
            out_ptr, sinks_ptr, query_start_loc_ptr, tile_ends_ptr, partials_ptr,
            partial_stats_ptr, shared_ptr, num_shared, shared_partials_ptr, shared_stats_ptr,
            capacity, head, share, num_shares, per_share, begin, stop, first_row, last_row,
            stride_out, GROUP, NUM_KV_HEADS, HEAD_SIZE, HEAD_PADDED, SHARED_QUERIES,
            STORED_QUERIES, SHARED_ROWS, TILE, HAS_SINKS,
        )  # fmt: skip


def paged_decode(
    q: torch.Tensor,
    kv: torch.Tensor,
    out: torch.Tensor,
    query_start_loc: torch.Tensor,
    decode_map: DecodeMap,
    *,
    scale: float,
    soft_cap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> None:
    """Attention of the rows in `decode_map`, written to their tokens of out; others are left.

    q[T, Hq, D] and out[T, Hq, D] with contiguous heads; kv: [num_blocks, 2, Hkv, block_size, D],
    contiguous but for the first dimension; query_start_loc is the map's. The keys of the
    step's own tokens are in the cache.
    """
    _, num_heads, head_size = q.shape
    _, _, num_kv_heads, block_size, _ = kv.shape
    config, shared = decode_map.config, decode_map.shared
    stored = decode_map.partials.shape[2]
    _paged_decode_kernel[(num_kv_heads, decode_map.num_shares)](
        q,
        kv,
        out,
        q if sinks is None else sinks,
        query_start_loc,
        decode_map.tile_ends,
        decode_map.tiles,
        decode_map.tile_blocks,
        decode_map.arrivals,
        decode_map.partials,
        decode_map.partial_stats,
        query_start_loc if shared is None else shared.slots,
        query_start_loc if shared is None else shared.block_table,
        query_start_loc if shared is None else shared.ints,
        decode_map.partials if shared is None else shared.partials,
        decode_map.partials if shared is None else shared.partial_stats,
        0 if shared is None else shared.capacity,
        decode_map.tile_ends.shape[0],
        q.shape[0],
        q.stride(0),
        out.stride(0),
        kv.stride(0),
        0 if shared is None else shared.block_table.stride(0),
        scale * LOG2E,
        0.0 if soft_cap is None else soft_cap * LOG2E,
        GROUP=num_heads // num_kv_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_SIZE=head_size,
        HEAD_PADDED=decode_map.partials.shape[3],
        BLOCK_SIZE=block_size,
        QUERIES=max(stored, MIN_DOT_ROWS),
        STORED_QUERIES=stored,
        MAX_QUERY_LEN=decode_map.max_query_len,
        TILE=decode_map.tile,
        WINDOW=decode_map.window,
        MERGE_CHUNK=max(_MERGE_CHUNK // cdiv(stored, 4), 1),
        HAS_CAP=soft_cap is not None,
        HAS_SINKS=sinks is not None,
        SHARED_ROWS=0 if shared is None else next_power_of_2(shared.rows_per_tile),
        SHARED_QUERIES=MIN_DOT_ROWS if shared is None else shared.queries,
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
