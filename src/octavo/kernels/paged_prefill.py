"""Paged attention for rows of many query tokens: FlashAttention-2 over a bounded, persistent grid.

A task is one tile of a row's queries for one KV head; the query heads that share the head are
packed into the tile. Programs draw tasks from a counter in device memory until none is left, so the
grid's size doesn't depend on the rows and the kernel fits in a CUDA graph.
(FlashAttention-2: Dao, arXiv:2307.08691.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from octavo.kernels.launch import num_multiprocessors
from octavo.kernels.page_range import attend_pages
from octavo.kernels.softmax import LOG2E, add_sinks
from octavo.utils.misc import next_power_of_2

_MAP_CHUNK = 1024  # rows, or tasks, that a map program looks at together
# A task's record: the row's first token, its query tokens, its length, its slot, and the first of
# the task's queries (counted in tokens times heads of a group).
RECORD = tl.constexpr(8)


@dataclass(frozen=True, slots=True)
class PrefillConfig:
    """Tile sizes of the prefill kernel."""

    block_m: int  # queries: tokens times the heads of a group
    block_n: int  # keys
    ctas_per_sm: int
    num_warps: int
    num_stages: int


def prefill_config(head_size: int, itemsize: int) -> PrefillConfig:
    """The configuration measured best on an H200, and for larger heads one without spills."""
    row_bytes = head_size * itemsize
    if row_bytes > 512:
        return PrefillConfig(block_m=32, block_n=16, ctas_per_sm=1, num_warps=8, num_stages=2)
    if itemsize > 2:
        return PrefillConfig(block_m=32, block_n=32, ctas_per_sm=1, num_warps=8, num_stages=2)
    if row_bytes > 256:
        return PrefillConfig(block_m=64, block_n=32, ctas_per_sm=1, num_warps=8, num_stages=2)
    return PrefillConfig(block_m=128, block_n=64, ctas_per_sm=1, num_warps=8, num_stages=3)


@dataclass(frozen=True, eq=False, slots=True)
class PrefillMap:
    """The tasks of one step; the same for layers of any window."""

    capacity: int  # tasks per KV head that the arrays hold
    config: PrefillConfig
    counters: torch.Tensor  # [2] int32: number of tasks per KV head; tasks drawn, zero at rest
    tasks: torch.Tensor  # [capacity * RECORD] int32


@triton.jit
def _tiles_of(query_start_loc_ptr, rows, num_rows, MIN_QUERY_LEN, MAX_QUERY_LEN, GROUP, BLOCK_M):
    live = rows < num_rows
    begin = tl.load(query_start_loc_ptr + rows, mask=live, other=0)
    query_len = tl.load(query_start_loc_ptr + rows + 1, mask=live, other=0) - begin
    tiles = (query_len * GROUP + BLOCK_M - 1) // BLOCK_M
    return tl.where((query_len >= MIN_QUERY_LEN) & (query_len <= MAX_QUERY_LEN), tiles, 0)


@triton.jit(
    do_not_specialize=["num_rows"],
    do_not_specialize_on_alignment=[
        "query_start_loc_ptr",
        "seq_lens_ptr",
        "slots_ptr",
        "counters_ptr",
        "tasks_ptr",
    ],
)
def _prefill_map_kernel(
    query_start_loc_ptr,
    seq_lens_ptr,
    slots_ptr,
    counters_ptr,
    tasks_ptr,
    num_rows,
    MIN_QUERY_LEN: tl.constexpr,
    MAX_QUERY_LEN: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """One program per row writes the row's tasks, the costliest (last) tile first."""
    row = tl.program_id(0)
    before = 0
    for start in range(0, row, CHUNK):
        rows = start + tl.arange(0, CHUNK)
        tiles = _tiles_of(
            query_start_loc_ptr, rows, row, MIN_QUERY_LEN, MAX_QUERY_LEN, GROUP, BLOCK_M
        )
        before += tl.sum(tiles, axis=0)
    tiles = _tiles_of(
        query_start_loc_ptr, row, num_rows, MIN_QUERY_LEN, MAX_QUERY_LEN, GROUP, BLOCK_M
    )
    begin = tl.load(query_start_loc_ptr + row)
    query_len = tl.load(query_start_loc_ptr + row + 1) - begin
    seq_len = tl.load(seq_lens_ptr + row)
    slot = tl.load(slots_ptr + row).to(tl.int32)
    for start in range(0, tiles, CHUNK):
        task = start + tl.arange(0, CHUNK)
        record = tasks_ptr + (before + task) * RECORD
        tl.store(record, begin, mask=task < tiles)
        tl.store(record + 1, query_len, mask=task < tiles)
        tl.store(record + 2, seq_len, mask=task < tiles)
        tl.store(record + 3, slot, mask=task < tiles)
        tl.store(record + 4, (tiles - 1 - task) * BLOCK_M, mask=task < tiles)
    if row == num_rows - 1:
        tl.store(counters_ptr, before + tiles)
        tl.store(counters_ptr + 1, 0)


@triton.jit
def _load_task(tasks_ptr, task, exists):
    record = tasks_ptr + task * RECORD
    query_begin = tl.load(record, mask=exists, other=0)
    query_len = tl.load(record + 1, mask=exists, other=0)
    seq_len = tl.load(record + 2, mask=exists, other=0)
    slot = tl.load(record + 3, mask=exists, other=0)
    first_query = tl.load(record + 4, mask=exists, other=0)
    return query_begin, query_len, seq_len, slot, first_query


@triton.jit(
    do_not_specialize_on_alignment=["counters_ptr", "tasks_ptr"],
)
def _paged_prefill_kernel(
    q_ptr,
    kv_ptr,
    out_ptr,
    sinks_ptr,
    block_table_ptr,
    counters_ptr,
    tasks_ptr,
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
    WINDOW: tl.constexpr,
    HAS_CAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    num_tickets = tl.load(counters_ptr) * NUM_KV_HEADS
    last_ticket = num_tickets + tl.num_programs(0) - 1
    query = tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD_PADDED)
    dim_ok = dims < HEAD_SIZE
    ticket = tl.atomic_add(counters_ptr + 1, 1, sem="relaxed")
    query_begin, query_len, seq_len, slot, first_query = _load_task(
        tasks_ptr, ticket // NUM_KV_HEADS, ticket < num_tickets
    )
    drawn = ticket
    while ticket < num_tickets:
        # Drawn early, so that the counter's round trip passes behind the work.
        drawn = tl.atomic_add(counters_ptr + 1, 1, sem="relaxed")
        # Programs that run together share a row's keys in L2, one head each.
        head = ticket % NUM_KV_HEADS
        table = block_table_ptr + slot.to(tl.int64) * stride_table
        token = (first_query + query) // GROUP
        q_head = head * GROUP + (first_query + query) % GROUP
        inside = token < query_len
        position = seq_len - query_len + token
        q_rows = (query_begin + token).to(tl.int64)
        mask = inside[:, None] & dim_ok[None, :]
        q_ptrs = q_ptr + (q_rows * stride_q + q_head * HEAD_SIZE)[:, None] + dims[None, :]
        q = tl.load(q_ptrs, mask=mask, other=0.0)

        first_position = seq_len - query_len + first_query // GROUP
        last_token = tl.minimum((first_query + BLOCK_M - 1) // GROUP, query_len - 1)
        last_key = seq_len - query_len + last_token + 1
        first_key = 0
        # All queries see every key of the tiles before this one.
        masked_from = (first_position + 1) // BLOCK_N * BLOCK_N
        if WINDOW > 0:
            first_key = tl.maximum(first_position - WINDOW + 1, 0) // BLOCK_N * BLOCK_N
            masked_from = first_key
        acc = tl.zeros((BLOCK_M, HEAD_PADDED), tl.float32)
        row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
        row_sum = tl.zeros((BLOCK_M,), tl.float32)
        if WINDOW == 0:
            acc, row_max, row_sum = attend_pages(
                q, position, table, kv_ptr, first_key, masked_from, seq_len, acc, row_max, row_sum,
                head, stride_block, scale, soft_cap, NUM_KV_HEADS, HEAD_SIZE, HEAD_PADDED,
                BLOCK_SIZE, BLOCK_N, WINDOW, False, HAS_CAP, PRECISION,
            )  # fmt: skip
        next_begin, next_query_len, next_seq_len, next_slot, next_query = _load_task(
            tasks_ptr, drawn // NUM_KV_HEADS, drawn < num_tickets
        )
        acc, row_max, row_sum = attend_pages(
            q, position, table, kv_ptr, masked_from, last_key, seq_len, acc, row_max, row_sum,
            head, stride_block, scale, soft_cap, NUM_KV_HEADS, HEAD_SIZE, HEAD_PADDED,
            BLOCK_SIZE, BLOCK_N, WINDOW, True, HAS_CAP, PRECISION,
        )  # fmt: skip

        if HAS_SINKS:
            sink = tl.load(sinks_ptr + q_head).to(tl.float32) * 1.4426950408889634
            decay, row_sum = add_sinks(row_max, row_sum, sink)
            acc = acc * decay[:, None]
        out = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
        out_ptrs = out_ptr + (q_rows * stride_out + q_head * HEAD_SIZE)[:, None] + dims[None, :]
        tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask)
        ticket = drawn
        query_begin, query_len, seq_len = next_begin, next_query_len, next_seq_len
        slot, first_query = next_slot, next_query
    # The last draw of all leaves the counter as it was found.
    if drawn == last_ticket:
        tl.store(counters_ptr + 1, 0)


def build_prefill_map(
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    slots: torch.Tensor,
    *,
    num_tokens: int,
    num_heads: int,
    num_kv_heads: int,
    min_query_len: int,
    max_query_len: int,
    config: PrefillConfig,
) -> PrefillMap:
    """List the query tiles of the rows with `min_query_len` (>= 1) to `max_query_len` query tokens.

    query_start_loc[R + 1], seq_lens[R] int32 and slots[R] on the device, R > 0; `num_tokens`
    bounds the step's tokens. Nothing is read back, so the launch may be captured.
    """
    device, num_rows = query_start_loc.device, query_start_loc.shape[0] - 1
    group = num_heads // num_kv_heads
    capacity = num_tokens * group // config.block_m + min(num_rows, num_tokens // min_query_len) + 1
    counters = torch.empty(2, dtype=torch.int32, device=device)
    tasks = torch.empty(capacity * RECORD.value, dtype=torch.int32, device=device)
    _prefill_map_kernel[(num_rows,)](
        query_start_loc,
        seq_lens,
        slots,
        counters,
        tasks,
        num_rows,
        MIN_QUERY_LEN=min_query_len,
        MAX_QUERY_LEN=max_query_len,
        GROUP=group,
        BLOCK_M=config.block_m,
        CHUNK=_MAP_CHUNK,
        num_warps=4,
    )
    return PrefillMap(capacity, config, counters, tasks)


def paged_prefill(
    q: torch.Tensor,
    kv: torch.Tensor,
    out: torch.Tensor,
    block_table: torch.Tensor,
    prefill_map: PrefillMap,
    *,
    scale: float,
    window: int = 0,
    soft_cap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> None:
    """Attention of the rows in `prefill_map`, written to their tokens of out; others are left.

    Tensors as for paged_decode, and the block_table whose lines the map's slots name; `window` 0
    means all keys.
    """
    _, num_heads, head_size = q.shape
    _, _, num_kv_heads, block_size, _ = kv.shape
    config = prefill_map.config
    programs = num_multiprocessors(q.device) * config.ctas_per_sm
    _paged_prefill_kernel[(min(programs, prefill_map.capacity * num_kv_heads),)](
        q,
        kv,
        out,
        q if sinks is None else sinks,
        block_table,
        prefill_map.counters,
        prefill_map.tasks,
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
        WINDOW=window,
        HAS_CAP=soft_cap is not None,
        HAS_SINKS=sinks is not None,
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
