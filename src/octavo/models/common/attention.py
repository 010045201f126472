"""Self-attention of a decoder layer: projections around Attention, and norms of q and k.

Letters in shapes: T tokens of the step, H hidden size, D head size, Hq and Hkv heads of this rank.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from octavo.attention.interface import AttentionContext, AttentionParams
from octavo.layers.attention import Attention
from octavo.layers.context import LayerContext
from octavo.layers.linear import QKVParallelLinear, RowParallelLinear
from octavo.layers.norm import RMSNorm
from octavo.layers.rotary import RotaryEmbedding
from octavo.layers.sharding import Part
from octavo.models.context import ModelContext


class SelfAttention(nn.Module):
    """Grouped-query attention; names as in Hugging Face's Llama.

    `q_norm` and `k_norm` are RMSNorms of every head; `scale` replaces the config's;
    `alibi_slopes` [heads of the model] bias the scores by distance.
    """

    def __init__(
        self,
        context: ModelContext,
        index: int,
        rotary: RotaryEmbedding,
        *,
        q_norm: RMSNorm | None = None,
        k_norm: RMSNorm | None = None,
        scale: float | None = None,
        alibi_slopes: torch.Tensor | None = None,
    ) -> None:
        super().__init__()
        arch = context.arch
        self.qkv_proj = QKVParallelLinear(
            context.at("qkv_proj"),
            arch.hidden_size,
            arch.head_size,
            arch.num_heads,
            arch.num_kv_heads,
            bias=arch.qkv_bias,
        )
        self.o_proj = RowParallelLinear(
            context.at("o_proj"),
            arch.num_heads * arch.head_size,
            arch.hidden_size,
            bias=arch.o_bias,
        )
        if q_norm is not None:
            self.q_norm: nn.Module = q_norm
        if k_norm is not None:
            self.k_norm: nn.Module = k_norm
        if alibi_slopes is not None:
            heads = Part.even(arch.num_heads, context.group.rank, context.group.size, "heads")
            alibi_slopes = alibi_slopes[heads.start : heads.start + heads.size].to(context.device)
        params = AttentionParams(
            scale=arch.attention_scale if scale is None else scale,
            num_heads=self.qkv_proj.num_heads,
            num_kv_heads=self.qkv_proj.num_kv_heads,
            head_size=arch.head_size,
            sliding_window=arch.window(index),
            soft_cap=arch.attention_soft_cap,
            alibi_slopes=alibi_slopes,
        )
        self.attn = Attention(context.at("attn"), params, rotary, q_norm, k_norm)

    def forward(
        self, x: torch.Tensor, positions: torch.Tensor, step: AttentionContext
    ) -> torch.Tensor:
        """x[T, H] -> [T, H]."""
        out: torch.Tensor = self.o_proj(self.attn(self.project(x), positions, step))
        return out

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, H] -> q, k and v, [T, (Hq + 2 Hkv) * D]."""
        qkv: torch.Tensor = self.qkv_proj(x)
        return qkv

    def normalize(self, qkv: torch.Tensor, q_norm: nn.Module, k_norm: nn.Module) -> None:
        """Put the norms of q and k in their places of qkv[T, (Hq + 2 Hkv) * D]."""
        q, k, _ = torch.split(qkv, [part.size for part in self.qkv_proj.outputs], dim=-1)
        q.copy_(q_norm(q))
        k.copy_(k_norm(k))


def head_norm_attention(
    context: ModelContext, index: int, rotary: RotaryEmbedding, norm: type[RMSNorm] = RMSNorm
) -> SelfAttention:
    """Attention whose q and k heads are normalized one by one, all with one weight."""
    arch = context.arch
    q_norm, k_norm = (norm(context, arch.head_size, arch.norm_eps) for _ in range(2))
    return SelfAttention(context, index, rotary, q_norm=q_norm, k_norm=k_norm)


class WideNormAttention(SelfAttention):
    """RMSNorm of all of q, and of all of k, before they are cut into heads (OLMo 2)."""

    def __init__(self, context: ModelContext, index: int, rotary: RotaryEmbedding) -> None:
        super().__init__(context, index, rotary)
        self.q_norm = WideNorm(context, self.qkv_proj.outputs[0], context.arch.norm_eps)
        self.k_norm = WideNorm(context, self.qkv_proj.outputs[1], context.arch.norm_eps)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, H] -> q and k, normalized, and v."""
        qkv: torch.Tensor = self.qkv_proj(x)
        self.normalize(qkv, self.q_norm, self.k_norm)
        return qkv


class WideNorm(RMSNorm):
    """RMSNorm over the parts that all ranks have; each keeps its own."""

    def __init__(self, context: LayerContext, part: Part, eps: float) -> None:
        super().__init__(context, part.full, eps)
        self._group = context.group
        self._part = part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, this rank's part] -> the same of the norm."""
        part = self._part
        if part.size == part.full:
            return super().forward(x)
        whole = super().forward(self._group.all_gather(x))
        return whole[:, part.start : part.start + part.size]


class HeadLayerNorm(nn.Module):
    """LayerNorm of each head, weight [heads, D]."""

    def __init__(self, context: ModelContext, outputs: Part) -> None:
        super().__init__()
        self._eps = context.arch.norm_eps
        size = context.arch.head_size
        self._heads = Part(outputs.full // size, outputs.start // size, outputs.size // size)
        self.weight = context.parameter(self._heads.size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, heads * D] -> the same shape."""
        heads = torch.unflatten(x, -1, tuple(self.weight.shape))
        normed = nn.functional.layer_norm(heads.float(), heads.shape[-1:], eps=self._eps)
        return (normed * self.weight).to(x.dtype).flatten(-2)

    def shard_shapes(self, param: str) -> list[tuple[int, ...]]:
        """All heads."""
        return [(self._heads.full, self.weight.shape[1])]

    def load_shard(self, param: str, index: int, tensor: torch.Tensor) -> None:
        """Copy this rank's heads."""
        heads = self._heads
        self.weight.data.copy_(tensor[heads.start : heads.start + heads.size])


class LayerNormAttention(SelfAttention):
    """LayerNorm without bias of every head of q and k, each with a weight of its own."""

    head_norm: ClassVar[type[HeadLayerNorm]] = HeadLayerNorm

    def __init__(self, context: ModelContext, index: int, rotary: RotaryEmbedding) -> None:
        super().__init__(context, index, rotary)
        q_heads, k_heads = self.qkv_proj.outputs[:2]
        self.q_norm = self.head_norm(context, q_heads)
        self.k_norm = self.head_norm(context, k_heads)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, H] -> q and k, normalized, and v."""
        qkv: torch.Tensor = self.qkv_proj(x)
        self.normalize(qkv, self.q_norm, self.k_norm)
        return qkv
