"""Logprobs of a chosen token and of the likeliest ones, without sorting the vocabulary."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from octavo.kernels.draw import store_survey
from octavo.kernels.noise import NO_FUSION, order_key, pack, unpack
from octavo.kernels.reference import sampling as reference
from octavo.kernels.topk_topp import (
    CANDIDATES,
    CHUNK,
    FEW_CANDIDATES,
    GROUP,
    GROUPS,
    PAIRS,
    list_candidates,
    threshold_key,
)
from octavo.utils.misc import next_power_of_2

# More of the likeliest tokens than this are left to a sort.
MAX_TOP = 256
_MIN_WIDTH = 32  # one compiled kernel for all the usual numbers of logprobs

_GROUPS = tl.constexpr(GROUPS)
_CHUNK = tl.constexpr(CHUNK)
_CANDIDATES = tl.constexpr(CANDIDATES)
_FEW_CANDIDATES = tl.constexpr(FEW_CANDIDATES)
_PAIRS = tl.constexpr(PAIRS)
_WORST = tl.constexpr(-(1 << 63))


@triton.jit
def _survey_kernel(
    logits_ptr,
    token_ids_ptr,
    maxima_ptr,
    masses_ptr,
    before_ptr,
    stride_logits,
    num_tokens,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """Program (row, chunk): the chunk's survey, and how many tokens rank before the chosen."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    BLOCK: tl.constexpr = GROUP * GROUPS
    x_ptr = logits_ptr + row * stride_logits
    token_ids = chunk * BLOCK + tl.arange(0, BLOCK)
    mask = token_ids < num_tokens
    x = tl.load(x_ptr + token_ids, mask=mask, other=float("-inf")).to(tl.float32)
    chosen = tl.load(token_ids_ptr + row)
    chosen_x = tl.load(x_ptr + chosen).to(tl.float32)
    before = mask & (pack(x, token_ids) > pack(chosen_x, chosen.to(tl.int32)))
    out = row * tl.num_programs(1) + chunk
    tl.store(before_ptr + out, tl.sum(before.to(tl.int32)))
    store_survey(x, maxima_ptr + out * GROUPS, masses_ptr + out, GROUP, GROUPS)


@triton.jit
def _likeliest_of_row(x_ptr, out_ptr, num_top, num_tokens):
    """Write the packed likeliest tokens, one pass over the row for each."""
    last = tl.full((), (1 << 63) - 1, tl.int64)
    for i in range(num_top):
        best = tl.full((), _WORST, tl.int64)
        for first in range(0, num_tokens, _CHUNK):
            token_ids = first + tl.arange(0, _CHUNK)
            mask = token_ids < num_tokens
            x = tl.load(x_ptr + token_ids, mask=mask, other=0.0).to(tl.float32)
            packed = pack(x, token_ids)
            packed = tl.where(mask & (packed < last), packed, _WORST)
            best = tl.maximum(best, tl.max(packed))
        tl.store(out_ptr + i, best)
        last = best


@triton.jit
def _sort_listed(candidates_ptr, count, num_top, SIZE: tl.constexpr):
    """Move the best `num_top` of the list of `count` <= SIZE to its beginning, in order."""
    at = tl.arange(0, SIZE)
    packed = tl.load(candidates_ptr + at, mask=at < count, other=_WORST)
    num_above = tl.zeros([SIZE], tl.int32)
    for first in range(0, count, _PAIRS // SIZE):
        other_at = first + tl.arange(0, _PAIRS // SIZE)
        others = tl.load(candidates_ptr + other_at, mask=other_at < count, other=_WORST)
        num_above += tl.sum((others[None, :] > packed[:, None]).to(tl.int32), axis=1)
    tl.debug_barrier()
    tl.store(candidates_ptr + num_above, packed, mask=(at < count) & (num_above < num_top))


@triton.jit(do_not_specialize=["num_top"])
def _top_kernel(
    logits_ptr,
    token_ids_ptr,
    maxima_ptr,
    masses_ptr,
    before_ptr,
    groups_ptr,
    candidates_ptr,
    ids_ptr,
    values_ptr,
    ranks_ptr,
    stride_logits,
    num_tokens,
    num_chunks,
    num_top,
    NORMALIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Program (row): the chosen token and the `num_top` < WIDTH likeliest, with their values."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr = logits_ptr + row * stride_logits
    candidates_ptr += row * _CANDIDATES
    chunk = tl.arange(0, CHUNKS)
    mask = chunk < num_chunks
    at = row * num_chunks + chunk
    before = tl.load(before_ptr + at, mask=mask, other=0)
    tl.store(ranks_ptr + row, (tl.sum(before) + 1).to(tl.int64))
    group = tl.arange(0, CHUNKS * _GROUPS)
    maxima = tl.load(
        maxima_ptr + row * num_chunks * _GROUPS + group,
        mask=group < num_chunks * _GROUPS,
        other=float("-inf"),
    )
    top = tl.max(maxima)
    masses = tl.load(masses_ptr + at, mask=mask, other=0.0)
    chunk_tops = tl.max(tl.reshape(maxima, (CHUNKS, _GROUPS)), axis=1)
    total = tl.sum(masses * tl.exp(chunk_tops - top).to(tl.float64))
    log_mass = tl.log(total.to(tl.float32))

    least_key = threshold_key(maxima, top, num_top, float("inf"))
    count = list_candidates(
        x_ptr,
        groups_ptr + row * CHUNKS * _GROUPS,
        candidates_ptr,
        order_key(maxima) >= least_key,
        least_key,
        float("-inf"),
        1.0,
        num_tokens,
        False,
        CHUNKS * _GROUPS,
    )
    if count > _CANDIDATES:
        _likeliest_of_row(x_ptr, candidates_ptr, num_top, num_tokens)
    elif count > _FEW_CANDIDATES:
        _sort_listed(candidates_ptr, count, num_top, _CANDIDATES)
    else:
        _sort_listed(candidates_ptr, count, num_top, _FEW_CANDIDATES)
    tl.debug_barrier()
    place = tl.arange(0, WIDTH)
    likeliest = (place > 0) & (place <= num_top)
    packed = tl.load(candidates_ptr + place - 1, mask=likeliest, other=0)
    x, token_ids = unpack(packed)
    chosen = tl.load(token_ids_ptr + row)
    chosen_x = tl.load(x_ptr + chosen).to(tl.float32)
    token_ids = tl.where(place == 0, chosen.to(tl.int32), token_ids)
    x = tl.where(place == 0, chosen_x, x)
    if NORMALIZE:
        x = x - top - log_mass
    out = row * (num_top + 1) + place
    # In a row of NaN there may be fewer candidates than wanted.
    token_ids = tl.minimum(token_ids, num_tokens - 1).to(tl.int64)
    tl.store(ids_ptr + out, token_ids, mask=place <= num_top)
    tl.store(values_ptr + out, x, mask=place <= num_top)


def top_logprobs(
    logits: torch.Tensor, token_ids: torch.Tensor, num_top: int, normalize: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The chosen and the likeliest tokens with their values; see the reference of the same name.

    logits[L, V] of any float dtype; rows may be strided.
    """
    num_rows, num_tokens = logits.shape
    if num_top > MAX_TOP:
        return reference.top_logprobs(logits.float(), token_ids, num_top, normalize)
    device = logits.device
    ids = torch.empty((num_rows, 1 + num_top), dtype=torch.int64, device=device)
    values = torch.empty((num_rows, 1 + num_top), dtype=torch.float32, device=device)
    ranks = torch.empty(num_rows, dtype=torch.int64, device=device)
    if not num_rows:
        return ids, values, ranks
    num_chunks = triton.cdiv(num_tokens, CHUNK)
    chunks = next_power_of_2(num_chunks)
    maxima = torch.empty((num_rows, num_chunks, GROUPS), dtype=torch.float32, device=device)
    masses = torch.empty((num_rows, num_chunks), dtype=torch.float64, device=device)
    before = torch.empty((num_rows, num_chunks), dtype=torch.int32, device=device)
    groups = torch.empty((num_rows, chunks * GROUPS), dtype=torch.int32, device=device)
    candidates = torch.empty((num_rows, CANDIDATES), dtype=torch.int64, device=device)
    _survey_kernel[(num_rows, num_chunks)](
        logits,
        token_ids,
        maxima,
        masses,
        before,
        logits.stride(0),
        num_tokens,
        GROUP=GROUP,
        GROUPS=GROUPS,
        num_warps=4,
        **NO_FUSION,
    )
    _top_kernel[(num_rows,)](
        logits,
        token_ids,
        maxima,
        masses,
        before,
        groups,
        candidates,
        ids,
        values,
        ranks,
        logits.stride(0),
        num_tokens,
        num_chunks,
        num_top,
        NORMALIZE=normalize,
        WIDTH=max(next_power_of_2(num_top + 1), _MIN_WIDTH),
        CHUNKS=chunks,
        num_warps=4,
        **NO_FUSION,
    )
    return ids, values, ranks
