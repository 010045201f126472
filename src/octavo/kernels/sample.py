"""The argmax of every row: all there is to sampling where every row is greedy."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from octavo.utils.misc import next_power_of_2

_BLOCK = 4096  # tokens of one program


@triton.jit
def _scan_kernel(
    logits_ptr,
    best_ptr,
    best_id_ptr,
    stride_logits,
    num_tokens,
    CHECKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (row, chunk): the chunk's highest logit and the lowest token id that has it.

    When CHECKED, NaN counts as infinity, so that the row's highest logit shows it.
    """
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    ids = chunk * BLOCK + tl.arange(0, BLOCK)
    mask = ids < num_tokens
    scores = tl.load(logits_ptr + row * stride_logits + ids, mask=mask, other=float("-inf"))
    scores = scores.to(tl.float32)
    if CHECKED:
        scores = tl.where(scores == scores, scores, float("inf"))
    best, where = tl.max(scores, axis=0, return_indices=True)
    at = row * tl.num_programs(1) + chunk
    tl.store(best_ptr + at, best)
    # A chunk of NaN may point past the end.
    tl.store(best_id_ptr + at, tl.minimum(chunk * BLOCK + where, num_tokens - 1))


@triton.jit(
    do_not_specialize=["num_chunks"],
    do_not_specialize_on_alignment=["best_ptr", "best_id_ptr", "out_ptr", "bad_ptr"],
)
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


def _scan(logits: torch.Tensor, bad: torch.Tensor | None) -> torch.Tensor:
    num_rows = logits.shape[0]
    num_tokens = logits.shape[1]
    out = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    if not num_rows:
        return out
    num_chunks = triton.cdiv(num_tokens, _BLOCK)
    best = torch.empty((num_rows, num_chunks), dtype=torch.float32, device=logits.device)
    best_id = torch.empty((num_rows, num_chunks), dtype=torch.int32, device=logits.device)
    _scan_kernel[(num_rows, num_chunks)](
        logits,
        best,
        best_id,
        logits.stride(0),
        num_tokens,
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
    return _scan(logits, None)


def greedy_checked(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """greedy(logits[R, V]) and [R] bool: the rows whose highest logit is not a finite number.

    Those get token 0. Any float dtype.
    """
    bad = torch.empty(logits.shape[0], dtype=torch.int8, device=logits.device)
    return _scan(logits, bad), bad.view(torch.bool)
