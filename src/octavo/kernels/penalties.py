"""Kernels that edit logits: penalties, allowed tokens, biases, the ban before min_tokens."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from octavo.kernels.noise import NO_FUSION
from octavo.kernels.reference.sampling import PROMPT_FLAG
from octavo.kernels.slot_tables import NUM_FEATURES, PENALTIES_WIDTH, Feature, SlotTables

_BLOCK = 4096  # tokens of one program
_FEATURES = tl.constexpr(NUM_FEATURES)
_PENALTIES = tl.constexpr(int(Feature.PENALTIES))
_ALLOWED = tl.constexpr(int(Feature.ALLOWED))
_BIAS = tl.constexpr(int(Feature.BIAS))
_MIN_TOKENS = tl.constexpr(int(Feature.MIN_TOKENS))
_PENALTIES_WIDTH = tl.constexpr(PENALTIES_WIDTH)
_COUNT_MASK = tl.constexpr(PROMPT_FLAG - 1)


@triton.jit
def _penalize(x, counts, repetition, frequency, presence):
    """The three penalties in their order; counts as in `SlotTables.seen`."""
    repeated = tl.where(x > 0.0, tl.div_rn(x, repetition), x * repetition)
    x = tl.where(counts != 0, repeated, x)
    outputs = counts & _COUNT_MASK
    x -= frequency * outputs.to(tl.float32)
    return x - presence * (outputs > 0).to(tl.float32)


@triton.jit
def edit_tile(
    x,
    token_ids,
    mask,
    first,
    slot,
    position,
    prompt_len,
    features_ptr,
    seen_ptr,
    penalties_ptr,
    allowed_ptr,
    bias_ids_ptr,
    bias_values_ptr,
    min_tokens_ids_ptr,
    min_tokens_ptr,
    bias_width,
    min_tokens_width,
    num_tokens,
    BLOCK: tl.constexpr,
):
    """Stages 2 to 9 of docs/sampling.md on a tile of float32 logits of one slot.

    The tile holds tokens [first, first + BLOCK). One compiled kernel serves every mix of features:
    what a slot does not use costs the load of a -1.
    """
    features = features_ptr + slot * _FEATURES
    row = tl.load(features + _MIN_TOKENS).to(tl.int64)
    least = tl.load(min_tokens_ptr + row, mask=row >= 0, other=0).to(tl.int32)
    if (row >= 0) & (position < prompt_len + least):
        for i in range(min_tokens_width):
            token = tl.load(min_tokens_ids_ptr + row * min_tokens_width + i).to(tl.int32)
            if (token >= first) & (token < first + BLOCK):
                x = tl.where(token_ids == token, float("-inf"), x)
    row = tl.load(features + _ALLOWED).to(tl.int64)
    if row >= 0:
        allowed = tl.load(allowed_ptr + row * num_tokens + token_ids, mask=mask, other=0)
        x = tl.where(allowed != 0, x, float("-inf"))
    row = tl.load(features + _BIAS).to(tl.int64)
    if row >= 0:
        for i in range(bias_width):
            token = tl.load(bias_ids_ptr + row * bias_width + i).to(tl.int32)
            if (token >= first) & (token < first + BLOCK):
                value = tl.load(bias_values_ptr + row * bias_width + i)
                x = tl.where(token_ids == token, x + value, x)
    row = tl.load(features + _PENALTIES).to(tl.int64)
    if row >= 0:
        counts = tl.load(seen_ptr + row * num_tokens + token_ids, mask=mask, other=0)
        values = penalties_ptr + row * _PENALTIES_WIDTH
        x = _penalize(x, counts, tl.load(values), tl.load(values + 1), tl.load(values + 2))
    return x


def edit_arguments(tables: SlotTables) -> dict[str, object]:
    """The arguments of `edit_tile` that come from the tables."""
    return {
        "features_ptr": tables.features,
        "seen_ptr": tables.seen,
        "penalties_ptr": tables.penalties,
        "allowed_ptr": tables.allowed.view(torch.int8),
        "bias_ids_ptr": tables.bias_ids,
        "bias_values_ptr": tables.bias_values,
        "min_tokens_ids_ptr": tables.min_tokens_ids,
        "min_tokens_ptr": tables.min_tokens,
        "bias_width": tables.bias_ids.shape[1],
        "min_tokens_width": tables.min_tokens_ids.shape[1],
    }


@triton.jit(do_not_specialize=["num_drafts"])
def _penalties_kernel(
    logits_ptr,
    index_ptr,
    seen_ptr,
    seen_rows_ptr,
    penalties_ptr,
    drafts_ptr,
    there_ptr,
    stride_logits,
    stride_penalties,
    num_tokens,
    num_drafts,
    HAS_INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (row, chunk)."""
    row = tl.program_id(0).to(tl.int64)
    target = row
    if HAS_INDEX:
        target = tl.load(index_ptr + row)
    token_ids = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = token_ids < num_tokens
    seen = seen_ptr + tl.load(seen_rows_ptr + row) * num_tokens
    counts = tl.load(seen + token_ids, mask=mask, other=0)
    for i in range(num_drafts):
        draft = tl.load(drafts_ptr + row * num_drafts + i).to(tl.int32)
        there = tl.load(there_ptr + row * num_drafts + i).to(tl.int32)
        counts += tl.where(token_ids == draft, there, 0)
    values = penalties_ptr + row * stride_penalties
    x_ptr = logits_ptr + target * stride_logits + token_ids
    x = tl.load(x_ptr, mask=mask, other=0.0)
    x = _penalize(x, counts, tl.load(values), tl.load(values + 1), tl.load(values + 2))
    tl.store(x_ptr, x, mask=mask)


def apply_penalties(
    logits: torch.Tensor,
    index: torch.Tensor | None,
    seen: torch.Tensor,
    seen_rows: torch.Tensor,
    penalties: torch.Tensor,
    drafts: tuple[torch.Tensor, torch.Tensor] | None,
) -> None:
    """Repetition, frequency and presence penalty, in place; see the reference of the same name."""
    num_rows, num_tokens = seen_rows.shape[0], logits.shape[1]
    if not num_rows:
        return
    draft_ids, there = drafts if drafts is not None else (seen_rows, seen_rows)
    _penalties_kernel[(num_rows, triton.cdiv(num_tokens, _BLOCK))](
        logits,
        seen_rows if index is None else index,
        seen,
        seen_rows,
        penalties,
        draft_ids,
        there.view(torch.int8) if drafts is not None else there,
        logits.stride(0),
        penalties.stride(0),
        num_tokens,
        draft_ids.shape[1] if drafts is not None else 0,
        HAS_INDEX=index is not None,
        BLOCK=_BLOCK,
        num_warps=8,
        **NO_FUSION,
    )


@triton.jit(do_not_specialize=["num_rows"])
def _count_kernel(
    slots_ptr, features_ptr, token_ids_ptr, seen_ptr, num_rows, num_tokens, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < num_rows
    slot = tl.load(slots_ptr + at, mask=mask, other=0).to(tl.int64)
    row = tl.load(features_ptr + slot * _FEATURES + _PENALTIES, mask=mask, other=-1).to(tl.int64)
    token = tl.load(token_ids_ptr + at, mask=mask, other=0)
    tl.atomic_add(seen_ptr + row * num_tokens + token, 1, mask=mask & (row >= 0))


def count_outputs(slots: torch.Tensor, token_ids: torch.Tensor, tables: SlotTables) -> None:
    """Count token_ids[R] int64 as outputs of slots[R] int64, where those have penalties."""
    num_rows = slots.shape[0]
    if num_rows:
        _count_kernel[(triton.cdiv(num_rows, 128),)](
            slots,
            tables.features,
            token_ids,
            tables.seen,
            num_rows,
            tables.seen.shape[1],
            BLOCK=128,
            num_warps=4,
        )
