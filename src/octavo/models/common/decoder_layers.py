"""Decoder layers by where their norms and residual sums are.

A layer takes its input already normed and returns what is to be added to the residual stream: the
sum belongs to the norm after it, which computes both at once. T tokens, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from octavo.attention.interface import AttentionContext
from octavo.layers.norm import LayerNorm, NoNorm, RMSNorm
from octavo.models.context import ModelContext

NormModule = RMSNorm | LayerNorm | NoNorm
# (context, size) -> a norm of the hidden size
NormBuilder = Callable[[ModelContext], NormModule]


class DecoderLayer(nn.Module):
    """Attention and MLP, each over a norm of the stream and added to it (Llama, GPT-2)."""

    def __init__(
        self,
        context: ModelContext,
        self_attn: nn.Module,
        mlp: nn.Module,
        build_norm: NormBuilder,
    ) -> None:
        super().__init__()
        self.input_layernorm: NormModule = build_norm(context)
        self.self_attn = self_attn
        self.post_attention_layernorm: NormModule = build_norm(context)
        self.mlp = mlp

    def forward(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        positions: torch.Tensor,
        step: AttentionContext,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x[T, H] after input_layernorm, residual[T, H] -> (what to add, residual)."""
        x = self.self_attn(x, positions, step)
        x, residual = self.post_attention_layernorm.add(x, residual)
        return self.mlp(x), residual


class ScaledLayer(DecoderLayer):
    """What attention and MLP add is scaled first (Granite)."""

    def __init__(
        self,
        context: ModelContext,
        self_attn: nn.Module,
        mlp: nn.Module,
        build_norm: NormBuilder,
        scale: float,
    ) -> None:
        super().__init__(context, self_attn, mlp, build_norm)
        self._scale = scale

    def forward(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        positions: torch.Tensor,
        step: AttentionContext,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See DecoderLayer."""
        x = self.self_attn(x, positions, step) * self._scale
        x, residual = self.post_attention_layernorm.add(x, residual)
        return self.mlp(x) * self._scale, residual


class SandwichLayer(DecoderLayer):
    """Norms before and after attention and MLP (Gemma 2 and 3)."""

    def __init__(
        self,
        context: ModelContext,
        self_attn: nn.Module,
        mlp: nn.Module,
        build_norm: NormBuilder,
    ) -> None:
        super().__init__(context, self_attn, mlp, build_norm)
        self.pre_feedforward_layernorm = build_norm(context)
        self.post_feedforward_layernorm = build_norm(context)

    def forward(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        positions: torch.Tensor,
        step: AttentionContext,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See DecoderLayer."""
        x = self.post_attention_layernorm(self.self_attn(x, positions, step))
        x, residual = self.pre_feedforward_layernorm.add(x, residual)
        return self.post_feedforward_layernorm(self.mlp(x)), residual


class PostNormLayer(nn.Module):
    """Norms after attention and MLP only (OLMo 2, EXAONE 4)."""

    def __init__(
        self,
        context: ModelContext,
        self_attn: nn.Module,
        mlp: nn.Module,
        build_norm: NormBuilder,
    ) -> None:
        super().__init__()
        self.input_layernorm: NormModule = NoNorm()
        self.self_attn = self_attn
        self.post_attention_layernorm = build_norm(context)
        self.mlp = mlp
        self.post_feedforward_layernorm = build_norm(context)

    def forward(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        positions: torch.Tensor,
        step: AttentionContext,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See DecoderLayer."""
        x = self.post_attention_layernorm(self.self_attn(x, positions, step))
        residual = x + residual
        return self.post_feedforward_layernorm(self.mlp(residual)), residual


class ParallelLayer(nn.Module):
    """Attention and MLP side by side over one norm of the stream (Cohere), or one each (NeoX)."""

    def __init__(
        self,
        context: ModelContext,
        self_attn: nn.Module,
        mlp: nn.Module,
        build_norm: NormBuilder,
        *,
        two_norms: bool = False,
    ) -> None:
        super().__init__()
        self.input_layernorm: NormModule = build_norm(context)
        self.self_attn = self_attn
        self.mlp = mlp
        self.post_attention_layernorm = build_norm(context) if two_norms else None

    def forward(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        positions: torch.Tensor,
        step: AttentionContext,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See DecoderLayer."""
        norm = self.post_attention_layernorm
        other = x if norm is None else norm(residual)
        return self.self_attn(x, positions, step) + self.mlp(other), residual


AnyLayer = DecoderLayer | PostNormLayer | ParallelLayer
