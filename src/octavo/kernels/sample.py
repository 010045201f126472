"""Sampling kernels that scan the vocabulary: argmax and the exponential race."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from octavo.utils.misc import next_power_of_2

_BLOCK = 4096  # tokens of one program


@triton.jit
def _mix(x):
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * 0x7FEB352D
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * -2073254261  # 0x846CA68B
    return x ^ ((x >> 16) & 0xFFFF)


@triton.jit
def _log_exponential(key_1, key_2, token_ids):
    """log E of tokens [C] int32 as octavo.kernels.reference.sampling defines it, [C] float32."""
    x = (token_ids * -1640531535) ^ key_1  # 0x9E3779B1
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = ((x ^ (x >> 15)) ^ key_2) * -2073254261
    x = x ^ (x >> 16)
    v = (x.to(tl.float32) + 0.5) * 4.656612595521636e-10
    # log1p(-v) from log: the quotient undoes what rounding 1 - v did to v (W. Kahan).
    u = 1.0 - v
    exponential = tl.where(u == 1.0, v, tl.log(u) * v / tl.where(u == 1.0, -1.0, u - 1.0))
    return tl.log(exponential)


@triton.jit
def _scan_kernel(
    logits_ptr,
    index_ptr,
    key_1_ptr,
    key_2_ptr,
    best_ptr,
    best_id_ptr,
    stride_logits,
    num_tokens,
    HAS_INDEX: tl.constexpr,
    RACE: tl.constexpr,
    CHECKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (row, chunk): the chunk's best score and the lowest token id that has it.

    When CHECKED, NaN counts as infinity, so that the row's best score shows it.
    """
    row = tl.program_id(0)
    chunk = tl.program_id(1)
    source = row.to(tl.int64)
    if HAS_INDEX:
        source = tl.load(index_ptr + row).to(tl.int64)
    ids = chunk * BLOCK + tl.arange(0, BLOCK)
    mask = ids < num_tokens
    scores = tl.load(logits_ptr + source * stride_logits + ids, mask=mask, other=float("-inf"))
    scores = scores.to(tl.float32)
    if RACE:
        scores -= _log_exponential(tl.load(key_1_ptr + row), tl.load(key_2_ptr + row), ids)
    if CHECKED:
        scores = tl.where(scores == scores, scores, float("inf"))
    best, where = tl.max(scores, axis=0, return_indices=True)
    at = row * tl.num_programs(1) + chunk
    tl.store(best_ptr + at, best)
    # A chunk of NaN may point past the end.
    tl.store(best_id_ptr + at, tl.minimum(chunk * BLOCK + where, num_tokens - 1))


@triton.jit
def _pick_kernel(
    best_ptr,
    best_id_ptr,
    out_ptr,
    bad_ptr,
    num_chunks,
    CHECKED: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Program (row): the best of the chunks; the first one among equals."""
    row = tl.program_id(0)
    chunk = tl.arange(0, CHUNKS)
    mask = chunk < num_chunks
    best = tl.load(best_ptr + row * num_chunks + chunk, mask=mask, other=float("-inf"))
    top, where = tl.max(best, axis=0, return_indices=True)
    where = tl.minimum(where, num_chunks - 1)
    token_id = tl.load(best_id_ptr + row * num_chunks + where).to(tl.int64)
    if CHECKED:
        bad = (top == float("inf")) | (top == float("-inf"))
        token_id = tl.where(bad, 0, token_id)
        tl.store(bad_ptr + row, bad.to(tl.int8))
    tl.store(out_ptr + row, token_id)


def _scan(
    logits: torch.Tensor,
    index: torch.Tensor | None,
    keys: tuple[torch.Tensor, torch.Tensor] | None,
    bad: torch.Tensor | None = None,
) -> torch.Tensor:
    num_rows = logits.shape[0] if index is None else index.shape[0]
    num_tokens = logits.shape[1]
    out = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    if not num_rows:
        return out
    num_chunks = triton.cdiv(num_tokens, _BLOCK)
    best = torch.empty((num_rows, num_chunks), dtype=torch.float32, device=logits.device)
    best_id = torch.empty((num_rows, num_chunks), dtype=torch.int32, device=logits.device)
    _scan_kernel[(num_rows, num_chunks)](
        logits,
        logits if index is None else index,
        logits if keys is None else keys[0],
        logits if keys is None else keys[1],
        best,
        best_id,
        logits.stride(0),
        num_tokens,
        HAS_INDEX=index is not None,
        RACE=keys is not None,
        CHECKED=bad is not None,
        BLOCK=_BLOCK,
        num_warps=4,
    )
    _pick_kernel[(num_rows,)](
        best,
        best_id,
        out,
        out if bad is None else bad,
        num_chunks,
        CHECKED=bad is not None,
        CHUNKS=next_power_of_2(num_chunks),
        num_warps=1,
    )
    return out


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """[R] int64: the highest logit of each row of logits[R, V]; the lowest id among equals.

    A row with NaN gets some token id of the vocabulary.
    """
    return _scan(logits, None, None)


def greedy_checked(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """greedy(logits[R, V]) and [R] bool: the rows whose highest logit is not a finite number.

    Those get token 0. Any float dtype.
    """
    bad = torch.empty(logits.shape[0], dtype=torch.int8, device=logits.device)
    return _scan(logits, None, None, bad), bad.view(torch.bool)


def sample(
    logits: torch.Tensor, index: torch.Tensor | None, keys: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """[U] int64: one draw per row from softmax(logits[index]), by the exponential race.

    logits[R, V]; index[U] int64 or None for all rows; keys of octavo.kernels.reference.sampling.
    """
    return _scan(logits, index, keys)


@triton.jit
def _row_keys_kernel(
    seed_low_ptr, seed_high_ptr, positions_ptr, keys_ptr, num_rows, BLOCK: tl.constexpr
):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = row < num_rows
    low = tl.load(seed_low_ptr + row, mask=mask, other=0)
    high = tl.load(seed_high_ptr + row, mask=mask, other=0)
    position = tl.load(positions_ptr + row, mask=mask, other=0)
    key_1 = _mix(_mix(_mix(position + -1640531527) ^ low) ^ high)  # 0x9E3779B9
    key_2 = _mix(_mix(_mix(position + 0x3C6EF372) ^ high) ^ low)
    tl.store(keys_ptr + row, key_1, mask=mask)
    tl.store(keys_ptr + num_rows + row, key_2, mask=mask)


def row_keys(
    seed_low: torch.Tensor, seed_high: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The two noise keys of each row; every argument and result is [U] int32."""
    num_rows = positions.shape[0]
    keys = torch.empty((2, num_rows), dtype=torch.int32, device=positions.device)
    if num_rows:
        _row_keys_kernel[(triton.cdiv(num_rows, 128),)](
            seed_low, seed_high, positions, keys, num_rows, BLOCK=128, num_warps=4
        )
    return keys[0], keys[1]
