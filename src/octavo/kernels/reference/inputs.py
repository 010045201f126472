"""Reference of the step-input kernels: plain tensor operations on a handful of small tensors."""

from __future__ import annotations

import torch


def staged_write(data: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> None:
    """data[indices[i]] = values[i]; data[N], indices[n], values[n] int32, indices unique."""
    data[indices.long()] = values


def token_inputs(
    host_ids: torch.Tensor,
    token_row: torch.Tensor,
    query_start_loc: torch.Tensor,
    slots: torch.Tensor,
    last_token: torch.Tensor,
    num_computed: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What each token of a step is and where it stands.

    host_ids[T] int32: the token where the host knows it, -1 where it is the slot's last sampled
    one; token_row[T]; query_start_loc[R + 1]; slots[R] int64; last_token[num_slots + 1];
    num_computed[num_slots + 1].
    Returns input_ids[T] int32, positions[T] int64, seq_lens[R] int32. The last slot is the padding
    one: its tokens stand at position 0, so that no table indexed by position is left.
    """
    row = token_row.long()
    computed = num_computed[slots]
    starts = query_start_loc[:-1]
    seq_lens = computed + query_start_loc[1:] - starts
    offsets = torch.arange(token_row.shape[0], dtype=torch.int32, device=token_row.device)
    positions = (computed - starts)[row] + offsets
    positions = torch.where(slots[row] == num_computed.shape[0] - 1, 0, positions)
    ids = torch.where(host_ids < 0, last_token[slots][row], host_ids)
    return ids, positions.long(), seq_lens


def slot_mapping(
    positions: torch.Tensor,
    token_row: torch.Tensor,
    slots: torch.Tensor,
    block_table: torch.Tensor,
    block_size: int,
) -> torch.Tensor:
    """Where each token's key and value go: block * block_size + offset, [T] int64.

    block_table[num_slots + 1, max_blocks] int32.
    """
    slot = slots[token_row.long()]
    block = block_table[slot, positions // block_size]
    return block.long() * block_size + positions % block_size


def commit(
    slots: torch.Tensor,
    query_start_loc: torch.Tensor,
    sample_rows: torch.Tensor,
    token_ids: torch.Tensor,
    last_token: torch.Tensor,
    num_computed: torch.Tensor,
) -> None:
    """Advance the slots of a step: their lengths by their rows' tokens, and their last tokens.

    slots[R] int64; query_start_loc[R + 1] int32; token_ids[S] int64 were sampled for the rows
    sample_rows[S] int64. last_token, num_computed [num_slots + 1] int32 are written. Padding rows
    have no tokens, so the padding slot never advances.
    """
    num_computed.index_add_(0, slots, query_start_loc[1:] - query_start_loc[:-1])
    last_token[slots[sample_rows]] = token_ids.to(torch.int32)
