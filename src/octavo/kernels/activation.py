"""Gated activation kernels."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from octavo.kernels.launch import launch_options, start_dependents, wait_for_inputs

_BLOCK = 1024


@triton.jit
def silu_times(gate, up):
    """silu(gate) * up in fp32; gate and up are values already rounded to the model's dtype."""
    gate = gate.to(tl.float32)
    return gate / (1.0 + tl.exp(-gate)) * up.to(tl.float32)


@triton.jit
def _silu_and_mul_kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr, PDL: tl.constexpr):
    start_dependents(PDL)
    wait_for_inputs(PDL)
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < width
    x_row = x_ptr + row * 2 * width
    gate = tl.load(x_row + cols, mask=mask, other=0.0)
    up = tl.load(x_row + width + cols, mask=mask, other=0.0)
    out = silu_times(gate, up).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * width + cols, out, mask=mask)


def silu_and_mul(
    x: torch.Tensor, *, out: torch.Tensor | None = None, pdl: bool = False
) -> torch.Tensor:
    """silu(x[:, :I]) * x[:, I:] of a contiguous x[T, 2I] -> [T, I]."""
    num_rows, width = x.shape[0], x.shape[1] // 2
    if out is None:
        out = torch.empty((num_rows, width), dtype=x.dtype, device=x.device)
    if num_rows:
        _silu_and_mul_kernel[(num_rows, triton.cdiv(width, _BLOCK))](
            x, out, width, BLOCK=_BLOCK, PDL=pdl, num_warps=4, **launch_options(pdl)
        )
    return out
