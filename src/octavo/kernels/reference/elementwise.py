"""Norms, activations, embedding, rotary and cache write in plain PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension (Zhang & Sennrich, 2019).

    A weight of more digits than x takes the product to its own type before it is rounded.
    """
    if weight.dtype != x.dtype:
        return F.rms_norm(x.to(weight.dtype), weight.shape, weight, eps).to(x.dtype)
    return F.rms_norm(x, weight.shape, weight, eps)


def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(rms_norm(x + residual), x + residual), both [T, H]; the sum is written over `residual`."""
    residual.add_(x)
    return rms_norm(residual, weight, eps), residual


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """silu(x[:, :I]) * x[:, I:] of x[T, 2I] (SwiGLU's gate; Shazeer, 2020)."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


def embedding(ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Rows ids[T] of weight[V, H]."""
    return F.embedding(ids, weight)


def qk_norm_rope_cache(
    qkv: torch.Tensor,
    q_norm_weight: torch.Tensor | None,
    k_norm_weight: torch.Tensor | None,
    eps: float,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_page: torch.Tensor,
    rotary_dim: int,
    is_neox: bool,
) -> torch.Tensor:
    """Norm and rotate q and k, store k and v, return q[T, Hq, D]; see QKNormRopeCacheKernel.

    Works in place: the result is a view of `qkv`.
    """
    num_kv_heads, block_size, head_size = kv_page.shape[2:]
    heads = qkv.unflatten(-1, (-1, head_size))
    num_heads = heads.shape[1] - 2 * num_kv_heads
    q: torch.Tensor = heads[:, :num_heads]
    qk, kv = heads[:, :-num_kv_heads], heads[:, num_heads:]
    if q_norm_weight is not None:
        q.copy_(rms_norm(q, q_norm_weight, eps))
    if k_norm_weight is not None:
        k = kv[:, :num_kv_heads]
        k.copy_(rms_norm(k, k_norm_weight, eps))
    rotate_pairs(qk[..., :rotary_dim], cos_sin.index_select(0, positions), is_neox)
    kv = kv.unflatten(1, (2, num_kv_heads))
    if slot_mapping.numel() and int(slot_mapping.min()) < 0:
        used = slot_mapping >= 0
        kv, slot_mapping = kv[used], slot_mapping[used]
    block, offset = slot_mapping // block_size, slot_mapping % block_size
    kv_page[block, :, :, offset] = kv.to(kv_page.dtype)
    return q


def rotate_pairs(x: torch.Tensor, cos_sin: torch.Tensor, is_neox: bool) -> None:
    """Rotate pairs of x[T, heads, dim] in place by the angles of cos_sin[T, dim].

    Computes in float32 (RoPE; Su et al., 2021). A pair is (i, i + dim / 2) in GPT-NeoX's layout
    and (2 i, 2 i + 1) in GPT-J's.
    """
    work = x.float()
    first, second = work.chunk(2, dim=-1) if is_neox else (work[..., 0::2], work[..., 1::2])
    cos, sin = cos_sin.float().unsqueeze(1).chunk(2, dim=-1)
    second_sin = second * sin
    second.mul_(cos).addcmul_(first, sin)
    first.mul_(cos).sub_(second_sin)
    x.copy_(work)  # nothing to do for float32, where `work` is x
