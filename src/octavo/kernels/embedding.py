"""Embedding gather kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from octavo.kernels.launch import launch_options, start_dependents, wait_for_inputs

_BLOCK = 2048


@triton.jit
def _embedding_kernel(ids_ptr, weight_ptr, out_ptr, width, BLOCK: tl.constexpr, PDL: tl.constexpr):
    start_dependents(PDL)
    wait_for_inputs(PDL)
    token = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < width
    row = tl.load(ids_ptr + token).to(tl.int64)
    values = tl.load(weight_ptr + row * width + cols, mask=mask)
    tl.store(out_ptr + token * width + cols, values, mask=mask)


def embedding(
    ids: torch.Tensor,
    weight: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    pdl: bool = False,
) -> torch.Tensor:
    """weight[ids]: ids[T] int32 or int64, weight[V, H] contiguous -> [T, H]."""
    num_tokens, width = ids.shape[0], weight.shape[1]
    if out is None:
        out = torch.empty((num_tokens, width), dtype=weight.dtype, device=weight.device)
    if num_tokens:
        _embedding_kernel[(num_tokens, triton.cdiv(width, _BLOCK))](
            ids, weight, out, width, BLOCK=_BLOCK, PDL=pdl, num_warps=4, **launch_options(pdl)
        )
    return out
