"""BLOOM."""

from __future__ import annotations

import math

import torch

from octavo.layers.norm import LayerNorm
from octavo.layers.rotary import RotaryEmbedding
from octavo.models.common.attention import SelfAttention
from octavo.models.common.decoder import Decoder, DecoderCausalLM, LayerBuilder
from octavo.models.common.decoder_layers import DecoderLayer, NormBuilder
from octavo.models.common.mlp import PlainMLP
from octavo.models.common.weights import CheckpointLayout
from octavo.models.context import ModelContext


class BloomDecoder(Decoder):
    """Embeddings are normalized."""

    def __init__(
        self,
        context: ModelContext,
        build_layer: LayerBuilder,
        build_norm: NormBuilder,
        *,
        is_neox: bool,
    ) -> None:
        super().__init__(context, build_layer, build_norm, is_neox=is_neox)
        self.embed_norm = build_norm(context)

    def embed(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """input_ids[T] -> [T, H]."""
        hidden: torch.Tensor = self.embed_norm(self.embed_tokens(input_ids))
        return hidden


class BloomForCausalLM(DecoderCausalLM):
    """No positions but scores biased by distance: ALiBi (arXiv 2211.05100)."""

    decoder = BloomDecoder
    checkpoint = CheckpointLayout(
        names=(
            ("model.embed_tokens", "transformer.word_embeddings"),
            ("model.embed_norm", "transformer.word_embeddings_layernorm"),
            ("model.layers", "transformer.h"),
            ("model.norm", "transformer.ln_f"),
            ("self_attn", "self_attention"),
            ("o_proj", "dense"),
            ("mlp.up_proj", "mlp.dense_h_to_4h"),
            ("mlp.down_proj", "mlp.dense_4h_to_h"),
        ),
        whole={"qkv_proj": "query_key_value"},
        by_head=True,
        prefix="transformer.",
    )

    def build_layer(
        self, context: ModelContext, index: int, rotary: RotaryEmbedding
    ) -> DecoderLayer:
        """Decoder layer `index`."""
        slopes = _slopes(context.arch.num_heads)
        self_attn = SelfAttention(context.at("self_attn"), index, rotary, alibi_slopes=slopes)
        return DecoderLayer(context, self_attn, PlainMLP(context.at("mlp")), self.build_norm)

    def build_norm(self, context: ModelContext) -> LayerNorm:
        """A norm of the hidden size."""
        return LayerNorm(context, context.arch.hidden_size, context.arch.norm_eps)


def _slopes(num_heads: int) -> torch.Tensor:
    """Slopes of the power of two below, then every other one of the next, as in the paper."""
    lower = 2 ** math.floor(math.log2(num_heads))

    def powers(count: int) -> torch.Tensor:
        return torch.exp2(torch.arange(1, count + 1, dtype=torch.float32) * (-8 / count))

    return torch.cat([powers(lower), powers(2 * lower)[::2]])[:num_heads]
