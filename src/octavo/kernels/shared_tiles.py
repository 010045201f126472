"""Shared tiles: rows that begin with the same blocks attend to those together (cascade attention).

Up to `rows_per_tile` rows of one token are one tile of queries, rows times heads of a group, for
which every key of their prefix is loaded once. All programs of the decode kernel first compute
equal shares of these tiles' keys, then their shares of what is left of each row, its tail. Both
leave partial results, and whoever finishes the last part of a tile merges all its rows: the
prefix's parts in order, then each row's own. A step without shared prefixes reads one zero.
(Shared-prefix decoding: Hydragen, arXiv:2402.05099; FlashInfer's cascades, arXiv:2501.01005.)
"""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.kernels.page_range import attend_pages
from octavo.kernels.shared_map import HEADER
from octavo.kernels.softmax import add_sinks

# A part of a tile's prefix has at least so many keys: each costs its merging program about 0.7 us
# of waiting for 32 KB, and computing 512 keys costs a program 4 us or more.
MIN_PART_KEYS = tl.constexpr(512)
_CHUNK = tl.constexpr(64)  # tiles looked at together


@triton.jit
def is_lone(shared_ptr, num_tiles, capacity, row, NUM_KV_HEADS: tl.constexpr):
    """Whether a row is in no shared tile; read only where there is one."""
    row_tiles = shared_ptr + HEADER + (3 + NUM_KV_HEADS) * capacity
    return tl.load(row_tiles + row, mask=num_tiles > 0, other=-1) < 0


@triton.jit
def _share_of(shared_ptr, num_tiles, share, num_shares, TILE: tl.constexpr):
    """(tiles of keys per share, the first of this share's, the one behind its last)."""
    total = tl.load(shared_ptr + HEADER + num_tiles - 1)
    least: tl.constexpr = MIN_PART_KEYS // TILE if TILE < MIN_PART_KEYS else 1
    per_share = tl.maximum((total + num_shares - 1) // num_shares, least)
    begin = tl.minimum(share * per_share, total)
    return per_share, begin, tl.minimum(begin + per_share, total)


@triton.jit
def attend_shared(
    q_ptr,
    kv_ptr,
    query_start_loc_ptr,
    slots_ptr,
    block_table_ptr,
    shared_ptr,
    num_tiles,
    partials_ptr,
    partial_stats_ptr,
    capacity,
    head,
    share,
    num_shares,
    stride_q,
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
    TILE: tl.constexpr,
    HAS_CAP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Leave partial results of this share of the prefixes' keys; there are num_tiles > 0 tiles."""
    ends_ptr = shared_ptr + HEADER
    _, begin, stop = _share_of(shared_ptr, num_tiles, share, num_shares, TILE)
    tile = 0
    for start in range(0, num_tiles, _CHUNK):
        index = start + tl.arange(0, _CHUNK)
        ends = tl.load(ends_ptr + index, mask=index < num_tiles, other=1 << 30)
        tile += tl.sum((ends <= begin).to(tl.int32), axis=0)
    query = tl.arange(0, QUERIES)
    dims = tl.arange(0, HEAD_PADDED)
    at = begin
    while at < stop:
        tile_end = tl.load(ends_ptr + tile)
        tile_begin = tl.load(ends_ptr + tile - 1, mask=tile > 0, other=0)
        end = tl.minimum(tile_end, stop)
        row = tl.load(ends_ptr + capacity + tile)
        size = tl.load(ends_ptr + 2 * capacity + tile)
        live = query < size * GROUP
        # Rows of one token each: the tile's tokens are neighbours, as its rows are.
        token = tl.load(query_start_loc_ptr + row) + query // GROUP
        q_rows = q_ptr + token.to(tl.int64) * stride_q
        q_rows += (head * GROUP + query % GROUP) * HEAD_SIZE
        mask = live[:, None] & (dims < HEAD_SIZE)[None, :]
        q = tl.load(q_rows[:, None] + dims[None, :], mask=mask, other=0.0)
        table = block_table_ptr + tl.load(slots_ptr + row).to(tl.int64) * stride_table
        acc = tl.zeros((QUERIES, HEAD_PADDED), tl.float32)
        row_max = tl.full((QUERIES,), float("-inf"), tl.float32)
        row_sum = tl.zeros((QUERIES,), tl.float32)
        last_key = (end - tile_begin) * TILE
        acc, row_max, row_sum = attend_pages(
            q, query, table, kv_ptr, (at - tile_begin) * TILE, last_key, last_key, acc,
            row_max, row_sum, head, stride_block, scale, soft_cap, NUM_KV_HEADS, HEAD_SIZE,
            HEAD_PADDED, BLOCK_SIZE, TILE, 0, False, HAS_CAP, PRECISION,
        )  # fmt: skip
        # share + tile counts the cuts before this part, so it numbers the parts.
        part = (share + tile) * NUM_KV_HEADS + head
        stats = partial_stats_ptr + part * (2 * QUERIES) + query
        tl.store(stats, row_max, mask=live)
        tl.store(stats + QUERIES, row_sum, mask=live)
        parts = partials_ptr + (part * QUERIES + query[:, None]) * HEAD_PADDED + dims[None, :]
        tl.store(parts, acc, mask=live[:, None])
        tile += 1
        at = end


@triton.jit
def _fold(acc, row_max, row_sum, partials_ptr, stats_ptr, live, STRIDE: tl.constexpr):
    """Add a part to the state: partials_ptr[M, D], stats_ptr[M] and, STRIDE behind, the sums."""
    # Other programs wrote these: read them from L2, not from this multiprocessor's L1.
    values = tl.load(partials_ptr, mask=live[:, None], other=0.0, cache_modifier=".cg")
    part_max = tl.load(stats_ptr, mask=live, other=float("-inf"), cache_modifier=".cg")
    part_sum = tl.load(stats_ptr + STRIDE, mask=live, other=0.0, cache_modifier=".cg")
    new_max = tl.maximum(row_max, part_max)
    shift = tl.where(new_max == float("-inf"), 0.0, new_max)
    decay, weight = tl.exp2(row_max - shift), tl.exp2(part_max - shift)
    acc = acc * decay[:, None] + values * weight[:, None]
    return acc, new_max, row_sum * decay + part_sum * weight


@triton.jit
def _merge_tile(
    out_ptr,
    sinks_ptr,
    query_start_loc_ptr,
    tile_ends_ptr,
    partials_ptr,
    partial_stats_ptr,
    shared_partials_ptr,
    shared_stats_ptr,
    first_part,
    num_parts,
    row,
    size,
    per_share,
    head,
    stride_out,
    GROUP: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    QUERIES: tl.constexpr,
    STORED_QUERIES: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """Write the outputs of a tile's rows from all their parts."""
    query = tl.arange(0, QUERIES)
    dims = tl.arange(0, HEAD_PADDED)
    live = query < size * GROUP
    acc = tl.zeros((QUERIES, HEAD_PADDED), tl.float32)
    row_max = tl.full((QUERIES,), float("-inf"), tl.float32)
    row_sum = tl.zeros((QUERIES,), tl.float32)
    for index in range(num_parts):
        part = (first_part + index) * NUM_KV_HEADS + head
        stats = shared_stats_ptr + part * (2 * QUERIES) + query
        parts = shared_partials_ptr + (part * QUERIES + query[:, None]) * HEAD_PADDED
        acc, row_max, row_sum = _fold(
            acc, row_max, row_sum, parts + dims[None, :], stats, live, QUERIES
        )
    rows = row + query // GROUP
    tail_begin = tl.load(tile_ends_ptr + rows - 1, mask=live & (rows > 0), other=0)
    tail_end = tl.load(tile_ends_ptr + rows, mask=live, other=1)
    first_share = tail_begin // per_share
    tail_parts = tl.where(live, (tail_end - 1) // per_share - first_share + 1, 0)
    for index in range(tl.max(tail_parts, axis=0)):
        part = (first_share + rows + index) * NUM_KV_HEADS + head
        stats = partial_stats_ptr + part * (2 * STORED_QUERIES) + query % GROUP
        parts = partials_ptr + (part * STORED_QUERIES + query % GROUP)[:, None] * HEAD_PADDED
        acc, row_max, row_sum = _fold(
            acc, row_max, row_sum, parts + dims[None, :], stats, index < tail_parts, STORED_QUERIES
        )
    q_head = head * GROUP + query % GROUP
    if HAS_SINKS:
        sink = tl.load(sinks_ptr + q_head).to(tl.float32) * 1.4426950408889634
        decay, row_sum = add_sinks(row_max, row_sum, sink)
        acc = acc * decay[:, None]
    out = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    token = tl.load(query_start_loc_ptr + row) + query // GROUP
    out_rows = out_ptr + token.to(tl.int64) * stride_out + q_head * HEAD_SIZE
    mask = live[:, None] & (dims < HEAD_SIZE)[None, :]
    tl.store(out_rows[:, None] + dims[None, :], out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def settle_shared(
    out_ptr,
    sinks_ptr,
    query_start_loc_ptr,
    tile_ends_ptr,
    partials_ptr,
    partial_stats_ptr,
    shared_ptr,
    num_tiles,
    shared_partials_ptr,
    shared_stats_ptr,
    capacity,
    head,
    share,
    num_shares,
    per_share,
    begin,
    stop,
    first_row,
    last_row,
    stride_out,
    GROUP: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    QUERIES: tl.constexpr,
    STORED_QUERIES: tl.constexpr,
    ROWS_PADDED: tl.constexpr,
    TILE: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """Announce the parts that this program has written; merge the tiles that it completes.

    begin..stop: this program's share of the rows' tails, of rows first_row..last_row.
    """
    ends_ptr = shared_ptr + HEADER
    per_part, keys_begin, keys_stop = _share_of(shared_ptr, num_tiles, share, num_shares, TILE)
    keys_first = 0  # tiles of the prefix keys, then of the tails, that this program had
    keys_end = 0
    tails_first = 0
    tails_end = 0
    for start in range(0, num_tiles, _CHUNK):
        index = start + tl.arange(0, _CHUNK)
        there = index < num_tiles
        ends = tl.load(ends_ptr + index, mask=there, other=1 << 30)
        begins = tl.load(ends_ptr + index - 1, mask=there & (index > 0), other=0)
        rows = tl.load(ends_ptr + capacity + index, mask=there, other=1 << 29)
        behind = rows + tl.load(ends_ptr + 2 * capacity + index, mask=there, other=0)
        keys_first += tl.sum((ends <= keys_begin).to(tl.int32), axis=0)
        keys_end += tl.sum((there & (begins < keys_stop)).to(tl.int32), axis=0)
        tails_first += tl.sum((behind <= first_row).to(tl.int32), axis=0)
        tails_end += tl.sum((rows <= last_row).to(tl.int32), axis=0)
    num_keys = tl.where(keys_begin < keys_stop, keys_end - keys_first, 0)
    num_tails = tl.where(begin < stop, tails_end - tails_first, 0)
    lane = tl.arange(0, ROWS_PADDED)
    for index in range(num_keys + num_tails):
        tile = tl.where(index < num_keys, keys_first + index, tails_first + index - num_keys)
        row = tl.load(ends_ptr + capacity + tile)
        size = tl.load(ends_ptr + 2 * capacity + tile)
        live = lane < size
        rows = row + lane
        tail_begin = tl.load(tile_ends_ptr + rows - 1, mask=live & (rows > 0), other=0)
        tail_end = tl.load(tile_ends_ptr + rows, mask=live, other=1)
        tail_parts = (tail_end - 1) // per_share - tail_begin // per_share + 1
        ours = live & (tl.maximum(tail_begin, begin) < tl.minimum(tail_end, stop))
        prefix_end = tl.load(ends_ptr + tile)
        prefix_begin = tl.load(ends_ptr + tile - 1, mask=tile > 0, other=0)
        first_share = prefix_begin // per_part
        num_parts = (prefix_end - 1) // per_part - first_share + 1
        expected = num_parts + tl.sum(tl.where(live, tail_parts, 0), axis=0)
        done = tl.where(index < num_keys, 1, tl.sum(ours.to(tl.int32), axis=0))
        arrivals = ends_ptr + 3 * capacity + tile * NUM_KV_HEADS + head
        arrived = tl.atomic_add(arrivals, done, sem="acq_rel", scope="gpu")
        if arrived + done == expected:
            _merge_tile(
                out_ptr, sinks_ptr, query_start_loc_ptr, tile_ends_ptr, partials_ptr,
                partial_stats_ptr, shared_partials_ptr, shared_stats_ptr, first_share + tile,
                num_parts, row, size, per_share, head, stride_out, GROUP, NUM_KV_HEADS,
                HEAD_SIZE, HEAD_PADDED, QUERIES, STORED_QUERIES, HAS_SINKS,
            )  # fmt: skip
            tl.store(arrivals, 0)
