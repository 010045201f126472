"""RMSNorm kernels: plain, and with the residual sum in the same pass."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from octavo.kernels.launch import launch_options, start_dependents, wait_for_inputs
from octavo.utils.misc import next_power_of_2


@triton.jit
def _rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    stride_x,
    stride_residual,
    width,
    eps,
    HAS_RESIDUAL: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    start_dependents(PDL)
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < width
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    wait_for_inputs(PDL)
    x = tl.load(x_ptr + row * stride_x + cols, mask=mask, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        residual_ptrs = residual_ptr + row * stride_residual + cols
        x += tl.load(residual_ptrs, mask=mask, other=0.0).to(tl.float32)
        # The next layer reads the rounded sum, so the norm is that of the rounded sum too.
        total = x.to(residual_ptr.dtype.element_ty)
        tl.store(residual_ptrs, total, mask=mask)
        x = total.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / width + eps)
    normed = (x * scale * weight).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * width + cols, normed, mask=mask)


def _launch(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    out: torch.Tensor | None,
    pdl: bool,
) -> torch.Tensor:
    num_rows, width = x.shape
    if out is None:
        out = torch.empty((num_rows, width), dtype=x.dtype, device=x.device)
    if num_rows:
        block = next_power_of_2(width)
        _rms_norm_kernel[(num_rows,)](
            x,
            x if residual is None else residual,
            weight,
            out,
            x.stride(0),
            0 if residual is None else residual.stride(0),
            width,
            eps,
            HAS_RESIDUAL=residual is not None,
            BLOCK=block,
            PDL=pdl,
            num_warps=min(max(block // 512, 1), 16),
            **launch_options(pdl),
        )
    return out


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    out: torch.Tensor | None = None,
    pdl: bool = False,
) -> torch.Tensor:
    """x[T, H] / rms(x) * weight[H]; the last dimension of x is contiguous."""
    return _launch(x, None, weight, eps, out, pdl)


def fused_add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    out: torch.Tensor | None = None,
    pdl: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(rms_norm(x + residual), x + residual), both [T, H]; the sum is written over `residual`."""
    return _launch(x, residual, weight, eps, out, pdl), residual
