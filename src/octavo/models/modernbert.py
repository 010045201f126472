"""ModernBERT."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from octavo.attention.interface import AttentionContext
from octavo.config.pooler import HeadKind
from octavo.layers.activation import activation
from octavo.layers.embedding import VocabParallelEmbedding
from octavo.layers.norm import LayerNorm, NoNorm
from octavo.layers.pooler import HeadLinear, HeadNorm, ScoreHead
from octavo.models.common.encoder import Encoder, EncoderAttentionLayer, Head
from octavo.models.common.mlp import GatedMLP
from octavo.models.common.weights import CheckpointLayout
from octavo.models.context import ModelContext
from octavo.types.pooling_params import TOKEN_ID_MASK


class NormedTokens(nn.Module):
    """Token embedding, normed; positions come by rotation, and a pair's texts are alike."""

    def __init__(self, context: ModelContext) -> None:
        super().__init__()
        arch = context.arch
        self.tokens = VocabParallelEmbedding(
            context.at("tokens"), arch.vocab_size, arch.hidden_size
        )
        self.norm = _norm(context)

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """input_ids[T] -> [T, H]."""
        normed: torch.Tensor = self.norm(self.tokens(input_ids & TOKEN_ID_MASK))
        return normed


class ModernBertLayer(nn.Module):
    """Attention and MLP, each behind a norm; the first layer finds its input normed."""

    def __init__(self, context: ModelContext, index: int) -> None:
        super().__init__()
        self.attn_norm = _norm(context) if index else NoNorm()
        self.self_attn = EncoderAttentionLayer(context.at("self_attn"), context.arch.window(index))
        self.mlp_norm = _norm(context)
        self.mlp = GatedMLP(context.at("mlp"))

    def forward(
        self,
        x: torch.Tensor,
        step: AttentionContext,
        distance_bias: torch.Tensor | None,
        angles: torch.Tensor | None,
    ) -> torch.Tensor:
        """x[T, H] -> [T, H]; see EncoderAttentionLayer."""
        x = x + self.self_attn(self.attn_norm(x), step, distance_bias, angles)
        out: torch.Tensor = x + self.mlp(self.mlp_norm(x))
        return out


class ModernBertEncoder(Encoder):
    """Rotated heads, gated MLPs, and two layers of three that see near tokens (arXiv 2412.13663).

    Near and far layers rotate by wavelengths of their own.
    """

    checkpoint = CheckpointLayout(
        names=(
            ("embeddings.tokens", "embeddings.tok_embeddings"),
            ("self_attn.o_proj", "attn.Wo"),
            ("self_attn", "attn"),
            ("mlp.down_proj", "mlp.Wo"),
        ),
        whole={"qkv_proj": "Wqkv", "gate_up_proj": "Wi"},
        prefix="model.",
    )

    def __init__(self, context: ModelContext) -> None:
        super().__init__(context)
        self.final_norm = _norm(context)

    def build_embedding(self, context: ModelContext) -> nn.Module:
        """See Encoder."""
        return NormedTokens(context)

    def build_layer(self, context: ModelContext, index: int) -> nn.Module:
        """See Encoder."""
        return ModernBertLayer(context, index)

    def build_head(self, context: ModelContext, kind: HeadKind, num_labels: int) -> Head:
        """See Encoder: texts and tokens are scored alike, by two layers with a norm between."""
        config, arch = context.hf_config, context.arch
        hidden = arch.hidden_size
        first = HeadLinear(context, hidden, hidden, bias=bool(config.get("classifier_bias")))
        norm = HeadNorm(context, hidden, arch.norm_eps, bias=_has_norm_bias(config))
        last = HeadLinear(context, hidden, num_labels, bias=True)
        act = activation(context, str(config.get("classifier_activation") or "gelu"))
        names = {"head.dense": first, "head.norm": norm, "classifier": last}
        return Head(ScoreHead(first, act, last, norm), names)

    def forward(
        self, input_ids: torch.Tensor, positions: torch.Tensor, attn: AttentionContext
    ) -> torch.Tensor:
        """See Encoder."""
        normed: torch.Tensor = self.final_norm(super().forward(input_ids, positions, attn))
        return normed


def _norm(context: ModelContext) -> LayerNorm:
    arch = context.arch
    return LayerNorm(
        context, arch.hidden_size, arch.norm_eps, bias=_has_norm_bias(context.hf_config)
    )


def _has_norm_bias(hf_config: dict[str, Any]) -> bool:
    return bool(hf_config.get("norm_bias"))
