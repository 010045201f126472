"""Bars the tokens that a row's packed mask does not allow."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_BLOCK = 4096  # tokens


@triton.jit
def _keep_masked_kernel(
    logits_ptr, index_ptr, masks_ptr, row_stride, width, num_tokens, BLOCK: tl.constexpr
):
    entry = tl.program_id(0).to(tl.int64)
    tokens = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = tokens < num_tokens
    words = tl.load(masks_ptr + entry * width + tokens // 32, mask=inside, other=0)
    barred = ((words >> (tokens % 32)) & 1) == 0
    row = tl.load(index_ptr + entry).to(tl.int64)
    tl.store(logits_ptr + row * row_stride + tokens, float("-inf"), mask=inside & barred)


def keep_masked(logits: torch.Tensor, index: torch.Tensor, masks: torch.Tensor) -> None:
    """As the reference: logits[R, V] at rows index[U] int64, masks[U, ceil(V / 32)] int32."""
    num_tokens = logits.shape[1]
    grid = (index.shape[0], triton.cdiv(num_tokens, _BLOCK))
    _keep_masked_kernel[grid](
        logits,
        index,
        masks,
        logits.stride(0),
        masks.shape[1],
        num_tokens,
        BLOCK=_BLOCK,
        num_warps=8,
    )
