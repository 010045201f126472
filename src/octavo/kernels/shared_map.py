"""The shared tiles of a step: made on the device from what its rows say they share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from octavo.utils.misc import round_up

HEADER = tl.constexpr(16)  # entries before the arrays, which keeps them aligned


@dataclass(frozen=True, eq=False, slots=True)
class SharedTiles:
    """The shared tiles of a step, none or many; arrays are filled on the device.

    `ints` holds, behind a header whose first entry is the number of tiles: where each tile's keys
    end in the line of all (counted in tiles of keys), its first row, its number of rows, the parts
    that are done per KV head (zero between layers), and for each row of the step its tile or -1.
    """

    rows_per_tile: int
    queries: int  # height of the dot, at least rows_per_tile times the heads of a group
    capacity: int  # tiles, a multiple of 16
    ints: torch.Tensor  # int32
    first_rows: torch.Tensor  # [R] int32: see SharedPrefixRows
    num_tokens: torch.Tensor  # [R] int32
    slots: torch.Tensor  # [R]
    block_table: torch.Tensor
    partials: torch.Tensor  # [num_shares + tiles, Hkv, queries, D] fp32: unnormalized outputs
    partial_stats: torch.Tensor  # [num_shares + tiles, Hkv, 2, queries] fp32: maximum and sum


def make_shared_tiles(
    first_rows: torch.Tensor,
    num_tokens: torch.Tensor,
    slots: torch.Tensor,
    block_table: torch.Tensor,
    *,
    max_groups: int,
    queries: int,
    group: int,
    num_kv_heads: int,
    head_padded: int,
    num_shares: int,
) -> SharedTiles | None:
    """Room for the tiles of at most `max_groups` groups; None where no two rows make a tile."""
    num_rows, device = first_rows.shape[0], first_rows.device
    rows_per_tile = queries // group
    if num_rows < 2 or rows_per_tile < 2:
        return None
    num_tiles = num_rows // rows_per_tile + min(max_groups, num_rows // 2)
    capacity = round_up(num_tiles, 16)
    size = HEADER.value + (3 + num_kv_heads) * capacity + num_rows
    parts = (num_shares + num_tiles, num_kv_heads)
    return SharedTiles(
        rows_per_tile=rows_per_tile,
        queries=queries,
        capacity=capacity,
        ints=torch.empty(size, dtype=torch.int32, device=device),
        first_rows=first_rows,
        num_tokens=num_tokens,
        slots=slots,
        block_table=block_table,
        partials=torch.empty((*parts, queries, head_padded), dtype=torch.float32, device=device),
        partial_stats=torch.empty((*parts, 2, queries), dtype=torch.float32, device=device),
    )


@triton.jit
def tile_starts(first_rows_ptr, num_tokens_ptr, rows, live, ROWS: tl.constexpr, TILE: tl.constexpr):
    """(tiles of keys in the prefixes of rows[..], the same where a row begins a shared tile)."""
    prefix = tl.load(num_tokens_ptr + rows, mask=live, other=0) // TILE
    first = tl.load(first_rows_ptr + rows, mask=live, other=0)
    return prefix, tl.where((rows - first) % ROWS == 0, prefix, 0)


@triton.jit
def write_shared_tile(
    first_rows_ptr,
    num_tokens_ptr,
    shared_ptr,
    capacity,
    row,
    num_rows,
    tiles_before,
    keys_before,
    NUM_KV_HEADS: tl.constexpr,
    HEADS_PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    ROWS_PADDED: tl.constexpr,
    TILE: tl.constexpr,
):
    """Note the row's tile, and the tile itself if the row is its first."""
    prefix, starts = tile_starts(first_rows_ptr, num_tokens_ptr, row, True, ROWS, TILE)
    arrays = shared_ptr + HEADER
    if starts > 0:
        group = tl.load(first_rows_ptr + row)
        lane = tl.arange(0, ROWS_PADDED)
        near = (lane < ROWS) & (row + lane < num_rows)
        same = tl.load(first_rows_ptr + row + lane, mask=near, other=-1) == group
        same &= tl.load(num_tokens_ptr + row + lane, mask=near, other=0) > 0
        tl.store(arrays + tiles_before, keys_before + starts)
        tl.store(arrays + capacity + tiles_before, row)
        tl.store(arrays + 2 * capacity + tiles_before, tl.sum(same.to(tl.int32), axis=0))
        head = tl.arange(0, HEADS_PADDED)
        tl.store(
            arrays + 3 * capacity + tiles_before * NUM_KV_HEADS + head,
            tl.zeros((HEADS_PADDED,), tl.int32),
            mask=head < NUM_KV_HEADS,
        )
    tiles = tiles_before + tl.where(starts > 0, 1, 0)
    row_tiles = arrays + (3 + NUM_KV_HEADS) * capacity
    tl.store(row_tiles + row, tl.where(prefix > 0, tiles - 1, -1))
    if row == num_rows - 1:
        tl.store(shared_ptr, tiles)
