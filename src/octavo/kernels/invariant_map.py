"""The tasks of batch-invariant attention: who computes what, on which no result depends."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from octavo.kernels.launch import num_multiprocessors
from octavo.kernels.paged_prefill import PrefillConfig
from octavo.utils.misc import next_power_of_2

SEGMENT = 512  # keys
SPLIT_QUERIES = 16  # of a row (tokens times heads of a group) up to which its segments are divided
_PARTS_PER_PROGRAM = 16
_MAP_CHUNK = 1024  # rows, or tasks, that a map program looks at together
# A task's record: the row's first token, its query tokens, its length, its slot; the first of the
# task's queries; its first segment and how many; where its result is kept, -1: it is final; the
# row's first such part and how many.
RECORD = tl.constexpr(16)


def invariant_config(head_size: int, itemsize: int) -> PrefillConfig:
    """Tiles that hold two states in registers without spills; the same for every row."""
    row_bytes = head_size * itemsize
    if row_bytes > 512:
        return PrefillConfig(block_m=16, block_n=16, ctas_per_sm=1, num_warps=8, num_stages=2)
    if itemsize > 2:
        return PrefillConfig(block_m=16, block_n=32, ctas_per_sm=1, num_warps=8, num_stages=2)
    if row_bytes > 256:
        return PrefillConfig(block_m=32, block_n=32, ctas_per_sm=1, num_warps=8, num_stages=2)
    return PrefillConfig(block_m=64, block_n=32, ctas_per_sm=2, num_warps=4, num_stages=3)


@dataclass(frozen=True, eq=False, slots=True)
class InvariantMap:
    """The tasks of one step, for layers of one window."""

    window: int  # 0: all keys
    capacity: int  # tasks per KV head that the arrays hold
    config: PrefillConfig
    counters: torch.Tensor  # [2] int32: number of tasks per KV head; tasks drawn, zero at rest
    tasks: torch.Tensor  # [capacity * RECORD] int32
    arrivals: torch.Tensor  # [parts * Hkv] int32, zero at rest: parts of a row that are done
    partials: torch.Tensor  # [parts, Hkv, SPLIT_QUERIES, D] fp32: unnormalized outputs
    partial_stats: torch.Tensor  # [parts, Hkv, 2, SPLIT_QUERIES] fp32: maximum and sum


@triton.jit
def _row_sizes(
    query_start_loc_ptr,
    seq_lens_ptr,
    rows,
    num_rows,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    WINDOW: tl.constexpr,
    SEGMENT: tl.constexpr,
):
    """(tiles of queries, first segment, segments) of rows[..]; none of rows without tokens."""
    live = rows < num_rows
    begin = tl.load(query_start_loc_ptr + rows, mask=live, other=0)
    query_len = tl.load(query_start_loc_ptr + rows + 1, mask=live, other=0) - begin
    seq_len = tl.load(seq_lens_ptr + rows, mask=live, other=0)
    first = seq_len * 0
    if WINDOW > 0:
        first = tl.maximum(seq_len - query_len + 1 - WINDOW, 0) // SEGMENT
    segments = tl.where(query_len > 0, (seq_len + SEGMENT - 1) // SEGMENT - first, 0)
    return (query_len * GROUP + BLOCK_M - 1) // BLOCK_M, first, segments


@triton.jit
def _candidates(
    query_start_loc_ptr, rows, num_rows, segments, fair, GROUP: tl.constexpr, LIMIT: tl.constexpr
):
    """Parts of rows[..] if they are divided: those of few queries and more than a fair share."""
    live = rows < num_rows
    begin = tl.load(query_start_loc_ptr + rows, mask=live, other=0)
    query_len = tl.load(query_start_loc_ptr + rows + 1, mask=live, other=0) - begin
    wanted = (query_len * GROUP <= LIMIT) & (segments > 1) & (2 * segments > fair)
    return tl.where(wanted, segments, 0)


@triton.jit(
    do_not_specialize=["num_rows", "max_parts", "num_shares"],
    do_not_specialize_on_alignment=[
        "query_start_loc_ptr",
        "seq_lens_ptr",
        "slots_ptr",
        "counters_ptr",
        "tasks_ptr",
        "arrivals_ptr",
    ],
)
def _invariant_map_kernel(
    query_start_loc_ptr,
    seq_lens_ptr,
    slots_ptr,
    counters_ptr,
    tasks_ptr,
    arrivals_ptr,
    num_rows,
    max_parts,
    num_shares,
    NUM_KV_HEADS: tl.constexpr,
    HEADS_PADDED: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    WINDOW: tl.constexpr,
    SEGMENT: tl.constexpr,
    LIMIT: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Program (row) writes the row's tasks behind those of the rows before it.

    Which rows are divided depends on the step, and no bit of any result on that.
    """
    row = tl.program_id(0)
    total = 0
    for start in range(0, num_rows, CHUNK):
        rows = start + tl.arange(0, CHUNK)
        tiles, _, segments = _row_sizes(
            query_start_loc_ptr, seq_lens_ptr, rows, num_rows, GROUP, BLOCK_M, WINDOW, SEGMENT
        )
        total += tl.sum(tiles * segments, axis=0)
    fair = total // num_shares
    tasks_before = 0
    parts_before = 0
    for start in range(0, row, CHUNK):
        rows = start + tl.arange(0, CHUNK)
        tiles, _, segments = _row_sizes(
            query_start_loc_ptr, seq_lens_ptr, rows, row, GROUP, BLOCK_M, WINDOW, SEGMENT
        )
        parts = _candidates(query_start_loc_ptr, rows, row, segments, fair, GROUP, LIMIT)
        fits = (parts > 0) & (parts_before + tl.cumsum(parts, axis=0) <= max_parts)
        tasks_before += tl.sum(tl.where(fits, parts, tiles), axis=0)
        parts_before += tl.sum(parts, axis=0)
    tiles, first, segments = _row_sizes(
        query_start_loc_ptr, seq_lens_ptr, row, num_rows, GROUP, BLOCK_M, WINDOW, SEGMENT
    )
    parts = _candidates(query_start_loc_ptr, row, num_rows, segments, fair, GROUP, LIMIT)
    divided = (parts > 0) & (parts_before + parts <= max_parts)
    num_tasks = tl.where(divided, parts, tiles)
    begin = tl.load(query_start_loc_ptr + row)
    query_len = tl.load(query_start_loc_ptr + row + 1) - begin
    seq_len = tl.load(seq_lens_ptr + row)
    slot = tl.load(slots_ptr + row).to(tl.int32)
    for start in range(0, num_tasks, CHUNK):
        task = start + tl.arange(0, CHUNK)
        there = task < num_tasks
        record = tasks_ptr + (tasks_before + task) * RECORD
        tl.store(record, begin, mask=there)
        tl.store(record + 1, query_len, mask=there)
        tl.store(record + 2, seq_len, mask=there)
        tl.store(record + 3, slot, mask=there)
        tl.store(record + 4, tl.where(divided, 0, task * BLOCK_M), mask=there)
        tl.store(record + 5, tl.where(divided, first + task, first), mask=there)
        tl.store(record + 6, tl.where(divided, 1, segments), mask=there)
        tl.store(record + 7, tl.where(divided, parts_before + task, -1), mask=there)
        tl.store(record + 8, parts_before, mask=there)
        tl.store(record + 9, parts, mask=there)
    if divided:
        head = tl.arange(0, HEADS_PADDED)
        tl.store(
            arrivals_ptr + parts_before * NUM_KV_HEADS + head,
            tl.zeros((HEADS_PADDED,), tl.int32),
            mask=head < NUM_KV_HEADS,
        )
    if row == num_rows - 1:
        tl.store(counters_ptr, tasks_before + num_tasks)
        tl.store(counters_ptr + 1, 0)


def build_invariant_map(
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    slots: torch.Tensor,
    *,
    num_tokens: int,
    num_heads: int,
    num_kv_heads: int,
    head_size: int,
    window: int,
    config: PrefillConfig,
) -> InvariantMap:
    """List the tasks of a step's rows.

    query_start_loc[R + 1], seq_lens[R] int32 and slots[R] on the device, R > 0; `num_tokens`
    bounds the step's tokens. Nothing is read back, so the launch may be captured.
    """
    device, num_rows = query_start_loc.device, query_start_loc.shape[0] - 1
    group = num_heads // num_kv_heads
    num_shares = max(num_multiprocessors(device) * config.ctas_per_sm // num_kv_heads, 1)
    max_parts = num_shares * _PARTS_PER_PROGRAM
    capacity = num_tokens * group // config.block_m + min(num_rows, num_tokens) + 1 + max_parts
    ints = torch.empty(
        2 + max_parts * num_kv_heads + capacity * RECORD.value, dtype=torch.int32, device=device
    )
    counters, arrivals, tasks = ints.split([2, max_parts * num_kv_heads, capacity * RECORD.value])
    _invariant_map_kernel[(num_rows,)](
        query_start_loc,
        seq_lens,
        slots,
        counters,
        tasks,
        arrivals,
        num_rows,
        max_parts,
        num_shares,
        NUM_KV_HEADS=num_kv_heads,
        HEADS_PADDED=next_power_of_2(num_kv_heads),
        GROUP=group,
        BLOCK_M=config.block_m,
        WINDOW=window,
        SEGMENT=SEGMENT,
        LIMIT=SPLIT_QUERIES,
        CHUNK=_MAP_CHUNK,
        num_warps=4,
    )
    parts = (max_parts, num_kv_heads)
    padded = next_power_of_2(head_size)
    return InvariantMap(
        window=window,
        capacity=capacity,
        config=config,
        counters=counters,
        tasks=tasks,
        arrivals=arrivals,
        partials=torch.empty((*parts, SPLIT_QUERIES, padded), dtype=torch.float32, device=device),
        partial_stats=torch.empty((*parts, 2, SPLIT_QUERIES), dtype=torch.float32, device=device),
    )
