"""Draws of a step's tokens: one pass over the logits of all rows, then a short program per row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from octavo.kernels.noise import NO_FUSION, log_exponential, row_keys
from octavo.kernels.penalties import edit_arguments, edit_tile
from octavo.kernels.slot_tables import NUM_WORDS, Kind, SlotTables, Word
from octavo.kernels.topk_topp import CANDIDATES, CHUNK, GROUP, GROUPS, finish_kernel
from octavo.utils.misc import next_power_of_2

_WORDS = tl.constexpr(NUM_WORDS)
_TEMPERATURE = tl.constexpr(int(Word.TEMPERATURE))
_SEED_LOW = tl.constexpr(int(Word.SEED_LOW))
_SEED_HIGH = tl.constexpr(int(Word.SEED_HIGH))
_PROMPT_LEN = tl.constexpr(int(Word.PROMPT_LEN))
_KIND = tl.constexpr(int(Word.KIND))
_WHOLE = tl.constexpr(int(Kind.WHOLE))
_TRUNCATED = tl.constexpr(int(Kind.TRUNCATED))


@triton.jit
def store_survey(x, maxima_ptr, masses_ptr, GROUP: tl.constexpr, GROUPS: tl.constexpr):
    """Store a chunk's survey: the maxima of its groups, and its mass relative to the largest.

    Masses are float64, here and wherever they are compared with what top-p wants: kernels compiled
    apart may add them in different orders, and a token must not depend on which of them ran.
    """
    maxima = tl.max(tl.reshape(x, (GROUPS, GROUP)), axis=1)
    tl.store(maxima_ptr + tl.arange(0, GROUPS), maxima)
    top = tl.max(maxima)
    weights = tl.exp(x - tl.where(top == float("-inf"), 0.0, top))
    tl.store(masses_ptr, tl.sum(weights.to(tl.float64)))


@triton.jit(do_not_specialize=["bias_width", "min_tokens_width"])
def _scan_rows_kernel(
    logits_ptr,
    slots_ptr,
    positions_ptr,
    params_ptr,
    features_ptr,
    seen_ptr,
    penalties_ptr,
    allowed_ptr,
    bias_ids_ptr,
    bias_values_ptr,
    min_tokens_ids_ptr,
    min_tokens_ptr,
    edited_ptr,
    best_ptr,
    best_id_ptr,
    maxima_ptr,
    masses_ptr,
    stride_logits,
    bias_width,
    min_tokens_width,
    num_tokens,
    EDITS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """Program (row, chunk): edit the logits, divide by the temperature, and look at the outcome.

    What is kept of it: the best score and its lowest token for greedy rows and whole draws, the
    survey for truncated ones. NaN and +inf in the logits make the row's largest value +inf.
    """
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    BLOCK: tl.constexpr = GROUP * GROUPS
    slot = tl.load(slots_ptr + row).to(tl.int64)
    words_ptr = params_ptr + slot * _WORDS
    position = tl.load(positions_ptr + row).to(tl.int32)
    token_ids = chunk * BLOCK + tl.arange(0, BLOCK)
    mask = token_ids < num_tokens
    at = logits_ptr + row * stride_logits + token_ids
    x = tl.load(at, mask=mask, other=float("-inf")).to(tl.float32)
    if EDITS:
        usable = x < float("inf")
        x = edit_tile(
            x,
            token_ids,
            mask,
            chunk * BLOCK,
            slot,
            position,
            tl.load(words_ptr + _PROMPT_LEN),
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
            BLOCK,
        )
        x = tl.where(usable, x, float("inf"))
    x = tl.div_rn(x, tl.load(words_ptr + _TEMPERATURE).to(tl.float32, bitcast=True))
    x = tl.where(x < float("inf"), x, float("inf"))
    if EDITS:
        tl.store(edited_ptr + row * num_tokens + token_ids, x, mask=mask)
    kind = tl.load(words_ptr + _KIND)
    out = row * tl.num_programs(1) + chunk
    if kind == _TRUNCATED:
        store_survey(x, maxima_ptr + out * GROUPS, masses_ptr + out, GROUP, GROUPS)
    else:
        score = x
        if kind == _WHOLE:
            key_1, key_2 = row_keys(
                tl.load(words_ptr + _SEED_LOW), tl.load(words_ptr + _SEED_HIGH), position
            )
            score = x - log_exponential(key_1, key_2, token_ids)
        best, where = tl.max(score, axis=0, return_indices=True)
        tl.store(best_ptr + out, best)
        tl.store(best_id_ptr + out, chunk * BLOCK + where)


def draw(
    logits: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    tables: SlotTables,
    *,
    edits: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens [R] int64 and the rows [R] bool whose largest logit is not a finite number (token 0).

    logits[R, V] of any float dtype, rows may be strided, are only read; slots[R] and positions[R]
    are int32 or int64. Stages 2 to 16 of docs/sampling.md but for bad words and plug-ins; without
    `edits`, from temperature on. Nothing waits for the device, and the launches depend on nothing
    but shapes and `tables`, so a graph can hold them. With `edits` there is one float32 copy of
    the logits.
    """
    num_rows, num_tokens = logits.shape
    device = logits.device
    out = torch.empty(num_rows, dtype=torch.int64, device=device)
    bad = torch.empty(num_rows, dtype=torch.int8, device=device)
    if not num_rows:
        return out, bad.view(torch.bool)
    num_chunks = triton.cdiv(num_tokens, CHUNK)
    chunks = next_power_of_2(num_chunks)
    # Apart, so that all begin alike: Triton compiles anew for another alignment.
    best = torch.empty((num_rows, num_chunks), dtype=torch.float32, device=device)
    masses = torch.empty((num_rows, num_chunks), dtype=torch.float64, device=device)
    maxima = torch.empty((num_rows, num_chunks, GROUPS), dtype=torch.float32, device=device)
    best_id = torch.empty((num_rows, num_chunks), dtype=torch.int32, device=device)
    groups = torch.empty((num_rows, chunks * GROUPS), dtype=torch.int32, device=device)
    candidates = torch.empty((num_rows, CANDIDATES), dtype=torch.int64, device=device)
    edited = logits
    if edits:
        edited = torch.empty((num_rows, num_tokens), dtype=torch.float32, device=device)
    _scan_rows_kernel[(num_rows, num_chunks)](
        logits_ptr=logits,
        slots_ptr=slots,
        positions_ptr=positions,
        params_ptr=tables.params,
        edited_ptr=edited,
        best_ptr=best,
        best_id_ptr=best_id,
        maxima_ptr=maxima,
        masses_ptr=masses,
        stride_logits=logits.stride(0),
        num_tokens=num_tokens,
        EDITS=edits,
        GROUP=GROUP,
        GROUPS=GROUPS,
        num_warps=8 if edits else 4,
        **edit_arguments(tables),
        **NO_FUSION,
    )
    finish_kernel[(num_rows,)](
        edited,
        slots,
        positions,
        tables.params,
        best,
        best_id,
        maxima,
        masses,
        groups,
        candidates,
        out,
        bad,
        edited.stride(0),
        num_tokens,
        num_chunks,
        DIVIDE=not edits,
        CHUNKS=chunks,
        num_warps=8,
        **NO_FUSION,
    )
    return out, bad.view(torch.bool)
