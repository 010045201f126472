"""Paged attention whose result for a token depends, bit for bit, on its own sequence alone.

The keys of every query, in a prompt or in a decode row, are added up in one way: tiles of keys in
order within segments of SEGMENT keys that begin at multiples of it, and the segments' results in
order, each by the same multiply-adds. Who computes a segment is free: a program takes a tile of
queries with all its segments, or, where a row has few queries and more keys than its share, each
segment is a task of its own whose result is kept in memory until the last one merges them. Other
queries of a tile, and keys that a query doesn't see, change no bit: a product of a tile of queries
gives each query what it would give it alone, and a key out of sight adds zero.

Programs draw tasks from a counter in device memory, so the grid fits in a CUDA graph.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from octavo.kernels.invariant_map import RECORD, SEGMENT, SPLIT_QUERIES, InvariantMap
from octavo.kernels.launch import num_multiprocessors
from octavo.kernels.page_range import attend_pages
from octavo.kernels.softmax import LOG2E, add_sinks
from octavo.utils.misc import next_power_of_2

_MERGE_AHEAD = 4  # partial results loaded before the first of them is added


@triton.jit
def _add_part(acc, row_max, row_sum, part_acc, part_max, part_sum):
    """Add a segment's state to that of the segments before it, rounding in one way wherever."""
    new_max = tl.maximum(row_max, part_max)
    shift = tl.where(new_max == float("-inf"), 0.0, new_max)
    decay, weight = tl.exp2(row_max - shift), tl.exp2(part_max - shift)
    acc = tl.fma(acc, decay[:, None], part_acc * weight[:, None])
    return acc, new_max, tl.fma(row_sum, decay, part_sum * weight)


@triton.jit
def _merge_row(
    partials_ptr,
    partial_stats_ptr,
    first_part,
    num_parts,
    head,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    STORED: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Add up a divided row's segments in order; AHEAD of them are loaded together."""
    query = tl.arange(0, STORED)
    dims = tl.arange(0, HEAD_PADDED)
    acc = tl.zeros((STORED, HEAD_PADDED), tl.float32)
    row_max = tl.full((STORED,), float("-inf"), tl.float32)
    row_sum = tl.zeros((STORED,), tl.float32)
    for start in range(0, num_parts, AHEAD):
        for ahead in tl.static_range(AHEAD):
            # A part that isn't there adds zero.
            there = (start + ahead < num_parts) & (query < STORED)
            part = (first_part + start + ahead) * NUM_KV_HEADS + head
            stats = partial_stats_ptr + part * (2 * STORED) + query
            parts = partials_ptr + (part * STORED + query[:, None]) * HEAD_PADDED + dims[None, :]
            # Other programs wrote these: read them from L2, not from this multiprocessor's L1.
            values = tl.load(parts, mask=there[:, None], other=0.0, cache_modifier=".cg")
            part_max = tl.load(stats, mask=there, other=float("-inf"), cache_modifier=".cg")
            part_sum = tl.load(stats + STORED, mask=there, other=0.0, cache_modifier=".cg")
            acc, row_max, row_sum = _add_part(acc, row_max, row_sum, values, part_max, part_sum)
    return acc, row_max, row_sum


@triton.jit
def _finish(
    out_ptr,
    sinks_ptr,
    acc,
    row_max,
    row_sum,
    first_query,
    query_begin,
    query_len,
    head,
    stride_out,
    GROUP: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    QUERIES: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """Normalize acc[Q, D] and write it: query first_query + j, token by token of the group."""
    query = first_query + tl.arange(0, QUERIES)
    dims = tl.arange(0, HEAD_PADDED)
    token = query // GROUP
    q_head = head * GROUP + query % GROUP
    if HAS_SINKS:
        sink = tl.load(sinks_ptr + q_head).to(tl.float32) * 1.4426950408889634
        decay, row_sum = add_sinks(row_max, row_sum, sink)
        acc = acc * decay[:, None]
    out = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    rows = out_ptr + (query_begin + token).to(tl.int64) * stride_out + q_head * HEAD_SIZE
    mask = (token < query_len)[:, None] & (dims < HEAD_SIZE)[None, :]
    tl.store(rows[:, None] + dims[None, :], out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _invariant_attention_kernel(
    q_ptr,
    kv_ptr,
    out_ptr,
    sinks_ptr,
    block_table_ptr,
    counters_ptr,
    tasks_ptr,
    arrivals_ptr,
    partials_ptr,
    partial_stats_ptr,
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SEGMENT: tl.constexpr,
    STORED: tl.constexpr,
    AHEAD: tl.constexpr,
    WINDOW: tl.constexpr,
    HAS_CAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    num_tickets = tl.load(counters_ptr) * NUM_KV_HEADS
    last_ticket = num_tickets + tl.num_programs(0) - 1
    query = tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD_PADDED)
    ticket = tl.atomic_add(counters_ptr + 1, 1, sem="relaxed")
    drawn = ticket
    while ticket < num_tickets:
        # Drawn early, so that the counter's round trip passes behind the work.
        drawn = tl.atomic_add(counters_ptr + 1, 1, sem="relaxed")
        # The last task first: prompts are behind decode rows, and a row's last tile is costliest.
        record = tasks_ptr + (num_tickets - 1 - ticket) // NUM_KV_HEADS * RECORD
        head = ticket % NUM_KV_HEADS
        query_begin = tl.load(record)
        query_len = tl.load(record + 1)
        seq_len = tl.load(record + 2)
        slot = tl.load(record + 3)
        first_query = tl.load(record + 4)
        first_segment = tl.load(record + 5)
        num_segments = tl.load(record + 6)
        own_part = tl.load(record + 7)
        first_part = tl.load(record + 8)
        num_parts = tl.load(record + 9)
        table = block_table_ptr + slot.to(tl.int64) * stride_table
        token = (first_query + query) // GROUP
        q_head = head * GROUP + (first_query + query) % GROUP
        position = seq_len - query_len + token
        q_rows = q_ptr + (query_begin + token).to(tl.int64) * stride_q + q_head * HEAD_SIZE
        mask = (token < query_len)[:, None] & (dims < HEAD_SIZE)[None, :]
        q = tl.load(q_rows[:, None] + dims[None, :], mask=mask, other=0.0)
        last_token = tl.minimum((first_query + BLOCK_M - 1) // GROUP, query_len - 1)
        last_key = seq_len - query_len + last_token + 1
        # Segments that none of the tile's queries sees change nothing: leave them out.
        end_segment = tl.minimum(first_segment + num_segments, (last_key + SEGMENT - 1) // SEGMENT)
        if WINDOW > 0:
            oldest = seq_len - query_len + first_query // GROUP - WINDOW + 1
            seen_from = tl.maximum(oldest, 0) // SEGMENT
            first_segment = tl.maximum(first_segment, tl.minimum(seen_from, end_segment))
        acc = tl.zeros((BLOCK_M, HEAD_PADDED), tl.float32)
        row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
        row_sum = tl.zeros((BLOCK_M,), tl.float32)
        for segment in range(first_segment, end_segment):
            part_acc = tl.zeros((BLOCK_M, HEAD_PADDED), tl.float32)
            part_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
            part_sum = tl.zeros((BLOCK_M,), tl.float32)
            part_acc, part_max, part_sum = attend_pages(
                q, position, table, kv_ptr, segment * SEGMENT,
                tl.minimum((segment + 1) * SEGMENT, last_key), seq_len, part_acc, part_max,
                part_sum, head, stride_block, scale, soft_cap, NUM_KV_HEADS, HEAD_SIZE,
                HEAD_PADDED, BLOCK_SIZE, BLOCK_N, WINDOW, True, HAS_CAP, PRECISION,
            )  # fmt: skip
            acc, row_max, row_sum = _add_part(acc, row_max, row_sum, part_acc, part_max, part_sum)
        if own_part < 0:
            _finish(
                out_ptr, sinks_ptr, acc, row_max, row_sum, first_query, query_begin, query_len,
                head, stride_out, GROUP, HEAD_SIZE, HEAD_PADDED, BLOCK_M, HAS_SINKS,
            )  # fmt: skip
        else:
            part = own_part * NUM_KV_HEADS + head
            real = query < STORED
            stats = partial_stats_ptr + part * (2 * STORED) + query
            tl.store(stats, row_max, mask=real)
            tl.store(stats + STORED, row_sum, mask=real)
            parts = partials_ptr + (part * STORED + query[:, None]) * HEAD_PADDED + dims[None, :]
            tl.store(parts, acc, mask=real[:, None])
            # All threads have written before one of them announces it.
            tl.debug_barrier()
            arrived = tl.atomic_add(
                arrivals_ptr + first_part * NUM_KV_HEADS + head, 1, sem="acq_rel", scope="gpu"
            )
            if arrived == num_parts - 1:
                merged, merged_max, merged_sum = _merge_row(
                    partials_ptr, partial_stats_ptr, first_part, num_parts, head, NUM_KV_HEADS,
                    HEAD_PADDED, STORED, AHEAD,
                )  # fmt: skip
                _finish(
                    out_ptr, sinks_ptr, merged, merged_max, merged_sum, 0, query_begin, query_len,
                    head, stride_out, GROUP, HEAD_SIZE, HEAD_PADDED, STORED, HAS_SINKS,
                )  # fmt: skip
                tl.store(arrivals_ptr + first_part * NUM_KV_HEADS + head, 0)
        ticket = drawn
    # The last draw of all leaves the counter as it was found.
    if drawn == last_ticket:
        tl.store(counters_ptr + 1, 0)


def invariant_attention(
    q: torch.Tensor,
    kv: torch.Tensor,
    out: torch.Tensor,
    block_table: torch.Tensor,
    invariant_map: InvariantMap,
    *,
    scale: float,
    soft_cap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> None:
    """Attention of every row in the map, written to its tokens of out.

    Tensors as for paged_prefill. The bits of a token's result depend on the sizes of the heads
    and of the cache's blocks, the dtype and the device, and on nothing else than its sequence.
    """
    _, num_heads, head_size = q.shape
    _, _, num_kv_heads, block_size, _ = kv.shape
    config = invariant_map.config
    programs = num_multiprocessors(q.device) * config.ctas_per_sm
    _invariant_attention_kernel[(min(programs, invariant_map.capacity * num_kv_heads),)](
        q,
        kv,
        out,
        q if sinks is None else sinks,
        block_table,
        invariant_map.counters,
        invariant_map.tasks,
        invariant_map.arrivals,
        invariant_map.partials,
        invariant_map.partial_stats,
        q.stride(0),
        out.stride(0),
        kv.stride(0),
        block_table.stride(0),
        scale * LOG2E,
        0.0 if soft_cap is None else soft_cap * LOG2E,
        GROUP=num_heads // num_kv_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_SIZE=head_size,
        HEAD_PADDED=next_power_of_2(head_size),
        BLOCK_SIZE=block_size,
        BLOCK_M=config.block_m,
        BLOCK_N=config.block_n,
        SEGMENT=SEGMENT,
        STORED=SPLIT_QUERIES,
        AHEAD=_MERGE_AHEAD,
        WINDOW=invariant_map.window,
        HAS_CAP=soft_cap is not None,
        HAS_SINKS=sinks is not None,
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
