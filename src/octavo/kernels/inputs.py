"""Step-input kernels: a step's tokens, positions, lengths and cache slots, made on the device."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_BLOCK = 256


@triton.jit(
    do_not_specialize=["count"],
    do_not_specialize_on_alignment=["data_ptr", "indices_ptr", "values_ptr"],
)
def _staged_write_kernel(data_ptr, indices_ptr, values_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    index = tl.load(indices_ptr + at, mask=mask, other=0).to(tl.int64)
    tl.store(data_ptr + index, tl.load(values_ptr + at, mask=mask, other=0), mask=mask)


def staged_write(data: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> None:
    """data[indices[i]] = values[i]; data[N], indices[n], values[n] int32, indices unique."""
    count = indices.shape[0]
    if count:
        _staged_write_kernel[(triton.cdiv(count, _BLOCK),)](
            data, indices, values, count, BLOCK=_BLOCK, num_warps=4
        )


@triton.jit(
    do_not_specialize=["num_tokens", "num_rows", "padding_slot"],
    do_not_specialize_on_alignment=[
        "host_ids_ptr",
        "token_row_ptr",
        "query_start_loc_ptr",
        "slots_ptr",
        "last_token_ptr",
        "num_computed_ptr",
        "input_ids_ptr",
        "positions_ptr",
        "seq_lens_ptr",
    ],
)
def _token_inputs_kernel(
    host_ids_ptr,
    token_row_ptr,
    query_start_loc_ptr,
    slots_ptr,
    last_token_ptr,
    num_computed_ptr,
    input_ids_ptr,
    positions_ptr,
    seq_lens_ptr,
    num_tokens,
    num_rows,
    padding_slot,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_row = at < num_rows
    slot = tl.load(slots_ptr + at, mask=is_row, other=0)
    begin = tl.load(query_start_loc_ptr + at, mask=is_row, other=0)
    end = tl.load(query_start_loc_ptr + at + 1, mask=is_row, other=0)
    computed = tl.load(num_computed_ptr + slot, mask=is_row, other=0)
    tl.store(seq_lens_ptr + at, computed + end - begin, mask=is_row)

    is_token = at < num_tokens
    row = tl.load(token_row_ptr + at, mask=is_token, other=0)
    slot = tl.load(slots_ptr + row, mask=is_token, other=0)
    begin = tl.load(query_start_loc_ptr + row, mask=is_token, other=0)
    computed = tl.load(num_computed_ptr + slot, mask=is_token, other=0)
    host_id = tl.load(host_ids_ptr + at, mask=is_token, other=0)
    last = tl.load(last_token_ptr + slot, mask=is_token, other=0)
    tl.store(input_ids_ptr + at, tl.where(host_id < 0, last, host_id), mask=is_token)
    position = tl.where(slot == padding_slot, 0, computed + at - begin)
    tl.store(positions_ptr + at, position.to(tl.int64), mask=is_token)


def token_inputs(
    host_ids: torch.Tensor,
    token_row: torch.Tensor,
    query_start_loc: torch.Tensor,
    slots: torch.Tensor,
    last_token: torch.Tensor,
    num_computed: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What each token of a step is and where it stands; see octavo.kernels.reference.inputs."""
    num_tokens, num_rows, device = token_row.shape[0], slots.shape[0], slots.device
    input_ids = torch.empty(num_tokens, dtype=torch.int32, device=device)
    positions = torch.empty(num_tokens, dtype=torch.int64, device=device)
    seq_lens = torch.empty(num_rows, dtype=torch.int32, device=device)
    _token_inputs_kernel[(triton.cdiv(max(num_tokens, num_rows, 1), _BLOCK),)](
        host_ids,
        token_row,
        query_start_loc,
        slots,
        last_token,
        num_computed,
        input_ids,
        positions,
        seq_lens,
        num_tokens,
        num_rows,
        num_computed.shape[0] - 1,
        BLOCK=_BLOCK,
        num_warps=4,
    )
    return input_ids, positions, seq_lens


@triton.jit(
    do_not_specialize=["num_tokens"],
    do_not_specialize_on_alignment=["positions_ptr", "token_row_ptr", "slots_ptr", "out_ptr"],
)
def _slot_mapping_kernel(
    positions_ptr,
    token_row_ptr,
    slots_ptr,
    block_table_ptr,
    out_ptr,
    stride_table,
    num_tokens,
    BLOCK_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < num_tokens
    row = tl.load(token_row_ptr + at, mask=mask, other=0)
    slot = tl.load(slots_ptr + row, mask=mask, other=0).to(tl.int64)
    position = tl.load(positions_ptr + at, mask=mask, other=0)
    table = block_table_ptr + slot * stride_table
    block = tl.load(table + position // BLOCK_SIZE, mask=mask, other=0).to(tl.int64)
    tl.store(out_ptr + at, block * BLOCK_SIZE + position % BLOCK_SIZE, mask=mask)


def slot_mapping(
    positions: torch.Tensor,
    token_row: torch.Tensor,
    slots: torch.Tensor,
    block_table: torch.Tensor,
    block_size: int,
) -> torch.Tensor:
    """Where each token's key and value go; see octavo.kernels.reference.inputs."""
    num_tokens = positions.shape[0]
    out = torch.empty(num_tokens, dtype=torch.int64, device=positions.device)
    if num_tokens:
        _slot_mapping_kernel[(triton.cdiv(num_tokens, _BLOCK),)](
            positions,
            token_row,
            slots,
            block_table,
            out,
            block_table.stride(0),
            num_tokens,
            BLOCK_SIZE=block_size,
            BLOCK=_BLOCK,
            num_warps=4,
        )
    return out


@triton.jit(
    do_not_specialize=["num_rows", "num_samples"],
    do_not_specialize_on_alignment=[
        "slots_ptr",
        "query_start_loc_ptr",
        "sample_rows_ptr",
        "token_ids_ptr",
        "last_token_ptr",
        "num_computed_ptr",
    ],
)
def _commit_kernel(
    slots_ptr,
    query_start_loc_ptr,
    sample_rows_ptr,
    token_ids_ptr,
    last_token_ptr,
    num_computed_ptr,
    num_rows,
    num_samples,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.load(query_start_loc_ptr + at, mask=at < num_rows, other=0)
    end = tl.load(query_start_loc_ptr + at + 1, mask=at < num_rows, other=0)
    # Slots of rows with tokens are distinct; padding rows share one and must not race for it.
    live = (at < num_rows) & (end > begin)
    slot = tl.load(slots_ptr + at, mask=live, other=0)
    computed = tl.load(num_computed_ptr + slot, mask=live, other=0)
    tl.store(num_computed_ptr + slot, computed + end - begin, mask=live)

    sampled = at < num_samples
    row = tl.load(sample_rows_ptr + at, mask=sampled, other=0)
    slot = tl.load(slots_ptr + row, mask=sampled, other=0)
    token = tl.load(token_ids_ptr + at, mask=sampled, other=0)
    tl.store(last_token_ptr + slot, token.to(tl.int32), mask=sampled)


def commit(
    slots: torch.Tensor,
    query_start_loc: torch.Tensor,
    sample_rows: torch.Tensor,
    token_ids: torch.Tensor,
    last_token: torch.Tensor,
    num_computed: torch.Tensor,
) -> None:
    """Advance the slots of a step; see octavo.kernels.reference.inputs."""
    num_rows, num_samples = slots.shape[0], sample_rows.shape[0]
    _commit_kernel[(triton.cdiv(max(num_rows, num_samples, 1), _BLOCK),)](
        slots,
        query_start_loc,
        sample_rows,
        token_ids,
        last_token,
        num_computed,
        num_rows,
        num_samples,
        BLOCK=_BLOCK,
        num_warps=4,
    )
