"""The decode map: the tiles of keys that a step's decode rows have, in one line.

Shares of the line, one per program, are what paged_decode computes. The map is made on the device
once per step and read by every layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from octavo.kernels.launch import num_multiprocessors
from octavo.kernels.shared_map import (
    SharedTiles,
    make_shared_tiles,
    tile_starts,
    write_shared_tile,
)
from octavo.types.scheduler_output import MAX_SHARED_PREFIXES
from octavo.utils.misc import cdiv, next_power_of_2

MIN_DOT_ROWS = 16  # the height of the smallest dot
_MAP_CHUNK = 1024  # rows, or tiles, that a map program looks at together
_FEW_ROWS, _MANY_ROWS = 8, 192
# A tile's record: the keys in it, LAST_TILE added for the last one of its row and the row above
# that; the row's first token; the position of that token less that of the tile's first key.
RECORD = tl.constexpr(4)
KEYS_MASK = tl.constexpr(255)
LAST_TILE = tl.constexpr(256)
ROW_SHIFT = tl.constexpr(9)


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """Tile sizes of the decode kernel."""

    tile: int  # keys
    ctas_per_sm: int
    num_warps: int
    num_stages: int
    shared_queries: int = MIN_DOT_ROWS  # of a shared tile: what a program's registers hold


def decode_config(
    head_size: int, itemsize: int, queries: int, *, num_rows: int = 32, group: int = 1
) -> DecodeConfig:
    """The configuration for rows of up to `queries` query tokens times heads of a `group`.

    Measured best on an H200 for up to 16 queries and 256 bytes of head; beyond, one without
    spills whose programs still find their shared memory. With four heads or more in a group,
    tiles of 32 keys win by 2 to 18% for few rows (a row's end wastes less) and by 4% for many;
    in between (32 rows of 300 tokens) they lose 30%.
    """
    row_bytes = head_size * itemsize
    shared = MIN_DOT_ROWS if itemsize > 2 else 64
    if row_bytes > 512:
        return DecodeConfig(16, 1, 8, 2, shared)
    if row_bytes > 256:
        return DecodeConfig(32, 1, 8, 2, shared)
    if queries > MIN_DOT_ROWS:
        return DecodeConfig(64, 1, 4, 3, shared)
    if itemsize == 2 and group >= 4 and not _FEW_ROWS < num_rows < _MANY_ROWS:
        return DecodeConfig(32, 4, 2, 3, shared_queries=32)
    return DecodeConfig(64, 2, 4, 3, shared)


def decode_memory(head_size: int, itemsize: int, block_size: int) -> int:
    """Bytes of shared memory that a program takes; a tile has whole blocks."""
    row_bytes = head_size * itemsize
    sizes = []
    for queries in (MIN_DOT_ROWS, 64):
        config = decode_config(head_size, itemsize, queries)
        keys = 2 * max(config.tile, block_size) * config.num_stages
        sizes.append((keys + config.shared_queries) * row_bytes)
    return max(sizes)


@dataclass(frozen=True, eq=False, slots=True)
class DecodeMap:
    """Who computes what in one step, for layers of one window and head count."""

    max_query_len: int  # rows with more query tokens (or none) aren't in the map
    window: int  # 0: all keys
    num_shares: int  # programs per KV head
    tile: int  # keys
    config: DecodeConfig
    tile_ends: torch.Tensor  # [R] int32: tiles of rows 0..r
    tiles: torch.Tensor  # [capacity * RECORD] int32
    tile_blocks: torch.Tensor  # [capacity * blocks in a tile] int32: where the keys are
    arrivals: torch.Tensor  # [R * Hkv] int32, zero between layers: parts of a row that are done
    partials: torch.Tensor  # [num_shares + R, Hkv, Q, D] fp32: unnormalized outputs
    partial_stats: torch.Tensor  # [num_shares + R, Hkv, 2, Q] fp32: maximum and sum
    shared: SharedTiles | None = None  # None: every row reads all its keys itself


@triton.jit
def _row_tiles(
    query_start_loc_ptr,
    seq_lens_ptr,
    num_shared_ptr,
    rows,
    num_rows,
    MAX_QUERY_LEN: tl.constexpr,
    WINDOW: tl.constexpr,
    TILE: tl.constexpr,
    SHARED: tl.constexpr,
):
    """(first tile, number of tiles) of keys that rows[..] read: none if they aren't decoded."""
    live = rows < num_rows
    begin = tl.load(query_start_loc_ptr + rows, mask=live, other=0)
    query_len = tl.load(query_start_loc_ptr + rows + 1, mask=live, other=0) - begin
    seq_len = tl.load(seq_lens_ptr + rows, mask=live, other=0)
    first = seq_len * 0
    if WINDOW > 0:
        first = tl.maximum(seq_len - query_len + 1 - WINDOW, 0) // TILE
    if SHARED:
        first = tl.load(num_shared_ptr + rows, mask=live, other=0) // TILE
    tiles = (seq_len + TILE - 1) // TILE - first
    return first, tl.where((query_len > 0) & (query_len <= MAX_QUERY_LEN), tiles, 0)


@triton.jit(
    do_not_specialize=["capacity", "num_rows"],
    do_not_specialize_on_alignment=[
        "query_start_loc_ptr",
        "seq_lens_ptr",
        "slots_ptr",
        "tile_ends_ptr",
        "tiles_ptr",
        "tile_blocks_ptr",
        "arrivals_ptr",
        "first_rows_ptr",
        "num_shared_ptr",
        "shared_ptr",
    ],
)
def _decode_map_kernel(
    query_start_loc_ptr,
    seq_lens_ptr,
    slots_ptr,
    block_table_ptr,
    tile_ends_ptr,
    tiles_ptr,
    tile_blocks_ptr,
    arrivals_ptr,
    first_rows_ptr,
    num_shared_ptr,
    shared_ptr,
    capacity,
    num_rows,
    stride_table,
    NUM_KV_HEADS: tl.constexpr,
    HEADS_PADDED: tl.constexpr,
    MAX_QUERY_LEN: tl.constexpr,
    WINDOW: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    CHUNK: tl.constexpr,
    SHARED: tl.constexpr,
    ROWS: tl.constexpr,
    ROWS_PADDED: tl.constexpr,
):
    """Program (row) writes the row's tiles, behind those of the rows before it.

    With SHARED its tiles begin behind the prefix it shares, and it notes the shared tile that it
    is the first of.
    """
    row = tl.program_id(0)
    before = 0
    shared_before = 0
    shared_keys_before = 0
    for start in range(0, row, CHUNK):
        rows = start + tl.arange(0, CHUNK)
        _, tiles = _row_tiles(
            query_start_loc_ptr, seq_lens_ptr, num_shared_ptr, rows, row, MAX_QUERY_LEN, WINDOW,
            TILE, SHARED,
        )  # fmt: skip
        before += tl.sum(tiles, axis=0)
        if SHARED:
            _, starts = tile_starts(first_rows_ptr, num_shared_ptr, rows, rows < row, ROWS, TILE)
            shared_before += tl.sum((starts > 0).to(tl.int32), axis=0)
            shared_keys_before += tl.sum(starts, axis=0)
    first, tiles = _row_tiles(
        query_start_loc_ptr, seq_lens_ptr, num_shared_ptr, row, num_rows, MAX_QUERY_LEN, WINDOW,
        TILE, SHARED,
    )  # fmt: skip
    if SHARED:
        write_shared_tile(
            first_rows_ptr, num_shared_ptr, shared_ptr, capacity, row, num_rows, shared_before,
            shared_keys_before, NUM_KV_HEADS, HEADS_PADDED, ROWS, ROWS_PADDED, TILE,
        )  # fmt: skip
    seq_len = tl.load(seq_lens_ptr + row)
    query_begin = tl.load(query_start_loc_ptr + row)
    query_len = tl.load(query_start_loc_ptr + row + 1) - query_begin
    tl.store(tile_ends_ptr + row, before + tiles)
    for start in range(0, tiles, CHUNK):
        tile = start + tl.arange(0, CHUNK)
        key = (first + tile) * TILE
        record = tiles_ptr + (before + tile) * RECORD
        keys = tl.minimum(seq_len - key, TILE)
        last = tl.where(tile == tiles - 1, LAST_TILE, 0)
        tl.store(record, (row << ROW_SHIFT) + last + keys, mask=tile < tiles)
        tl.store(record + 1, query_begin, mask=tile < tiles)
        tl.store(record + 2, seq_len - query_len - key, mask=tile < tiles)
    BLOCKS: tl.constexpr = TILE // BLOCK_SIZE
    table = block_table_ptr + tl.load(slots_ptr + row).to(tl.int64) * stride_table
    last_block = (seq_len + BLOCK_SIZE - 1) // BLOCK_SIZE - 1
    for start in range(0, tiles * BLOCKS, CHUNK):
        at = start + tl.arange(0, CHUNK)
        inside = at < tiles * BLOCKS
        # A last tile may reach behind the table's used part: any block does for keys not there.
        page = tl.minimum(first * BLOCKS + at, last_block)
        block = tl.load(table + page, mask=inside, other=0)
        tl.store(tile_blocks_ptr + before * BLOCKS + at, block, mask=inside)
    head = tl.arange(0, HEADS_PADDED)
    tl.store(
        arrivals_ptr + row * NUM_KV_HEADS + head,
        tl.zeros((HEADS_PADDED,), tl.int32),
        mask=head < NUM_KV_HEADS,
    )


def free_query_len(group: int) -> int:
    """Query tokens of a row that cost no more than one: what fits in the smallest dot."""
    return max(MIN_DOT_ROWS // group, 1)


def max_query_len(group: int, head_size: int, itemsize: int) -> int:
    """Query tokens of a row up to which decoding keeps its state in registers."""
    queries = 64 if head_size * itemsize <= 256 and itemsize == 2 else MIN_DOT_ROWS
    return max(queries // group, 1)


def build_decode_map(
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    slots: torch.Tensor,
    block_table: torch.Tensor,
    *,
    block_size: int,
    num_heads: int,
    num_kv_heads: int,
    head_size: int,
    max_query_len: int,
    window: int,
    config: DecodeConfig,
    shared_rows: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> DecodeMap:
    """List the tiles of keys of the rows with 1 to `max_query_len` query tokens.

    query_start_loc[R + 1], seq_lens[R], slots[R] and block_table[S, max_blocks] on the device,
    R > 0. Nothing is read back: the map is right for whatever the tensors hold when the launch
    runs, so it may be captured. `shared_rows`: which rows read a prefix together, as (first
    row of a row's group, tokens of its prefix or 0), both [R] int32; not with a window.
    """
    device, num_rows = seq_lens.device, seq_lens.shape[0]
    num_shares = max(num_multiprocessors(device) * config.ctas_per_sm // num_kv_heads, 1)
    queries = next_power_of_2(max_query_len * (num_heads // num_kv_heads))
    tile = max(config.tile, block_size)
    capacity = num_rows * cdiv(block_table.shape[1] * block_size, tile)
    sizes = [
        num_rows,
        capacity * RECORD.value,
        capacity * (tile // block_size),
        num_rows * num_kv_heads,
    ]
    ints = torch.empty(sum(sizes), dtype=torch.int32, device=device)
    tile_ends, tiles, tile_blocks, arrivals = ints.split(sizes)
    num_parts = num_shares + num_rows
    padded = next_power_of_2(head_size)
    shared = None
    if shared_rows is not None:
        shared = make_shared_tiles(
            *shared_rows,
            slots,
            block_table,
            max_groups=MAX_SHARED_PREFIXES,
            queries=config.shared_queries,
            group=num_heads // num_kv_heads,
            num_kv_heads=num_kv_heads,
            head_padded=padded,
            num_shares=num_shares,
        )
    rows_per_tile = 1 if shared is None else shared.rows_per_tile
    _decode_map_kernel[(num_rows,)](
        query_start_loc,
        seq_lens,
        slots,
        block_table,
        tile_ends,
        tiles,
        tile_blocks,
        arrivals,
        seq_lens if shared is None else shared.first_rows,
        seq_lens if shared is None else shared.num_tokens,
        seq_lens if shared is None else shared.ints,
        0 if shared is None else shared.capacity,
        num_rows,
        block_table.stride(0),
        NUM_KV_HEADS=num_kv_heads,
        HEADS_PADDED=next_power_of_2(num_kv_heads),
        MAX_QUERY_LEN=max_query_len,
        WINDOW=window,
        TILE=tile,
        BLOCK_SIZE=block_size,
        CHUNK=_MAP_CHUNK,
        SHARED=shared is not None,
        ROWS=rows_per_tile,
        ROWS_PADDED=next_power_of_2(rows_per_tile),
        num_warps=4,
    )
    return DecodeMap(
        max_query_len=max_query_len,
        window=window,
        num_shares=num_shares,
        tile=tile,
        config=config,
        tile_ends=tile_ends,
        tiles=tiles,
        tile_blocks=tile_blocks,
        arrivals=arrivals,
        partials=torch.empty(
            (num_parts, num_kv_heads, queries, padded), dtype=torch.float32, device=device
        ),
        partial_stats=torch.empty(
            (num_parts, num_kv_heads, 2, queries), dtype=torch.float32, device=device
        ),
        shared=shared,
    )
