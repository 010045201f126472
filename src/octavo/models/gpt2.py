"""GPT-2."""

from __future__ import annotations

import torch

from octavo.layers.embedding import LearnedPositions
from octavo.layers.norm import LayerNorm
from octavo.layers.rotary import RotaryEmbedding
from octavo.models.common.attention import SelfAttention
from octavo.models.common.decoder import Decoder, DecoderCausalLM, LayerBuilder
from octavo.models.common.decoder_layers import DecoderLayer, NormBuilder
from octavo.models.common.mlp import PlainMLP
from octavo.models.common.weights import CheckpointLayout
from octavo.models.context import ModelContext


class GPT2Decoder(Decoder):
    """Learned positions are added to the embeddings."""

    def __init__(
        self,
        context: ModelContext,
        build_layer: LayerBuilder,
        build_norm: NormBuilder,
        *,
        is_neox: bool,
    ) -> None:
        super().__init__(context, build_layer, build_norm, is_neox=is_neox)
        arch = context.arch
        self.embed_positions = LearnedPositions(
            context, arch.max_position_embeddings, arch.hidden_size
        )

    def embed(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """input_ids[T], positions[T] -> [T, H]."""
        hidden: torch.Tensor = self.embed_tokens(input_ids) + self.embed_positions(positions)
        return hidden


class GPT2LMHeadModel(DecoderCausalLM):
    """LayerNorms, learned positions and plain MLPs (Radford et al., 2019)."""

    decoder = GPT2Decoder
    checkpoint = CheckpointLayout(
        names=(
            ("model.embed_tokens", "transformer.wte"),
            ("model.embed_positions", "transformer.wpe"),
            ("model.layers", "transformer.h"),
            ("model.norm", "transformer.ln_f"),
            ("self_attn", "attn"),
            ("attn.o_proj", "attn.c_proj"),
            ("mlp.up_proj", "mlp.c_fc"),
            ("mlp.down_proj", "mlp.c_proj"),
            ("input_layernorm", "ln_1"),
            ("post_attention_layernorm", "ln_2"),
        ),
        whole={"qkv_proj": "c_attn"},
        transposed=("qkv_proj", "o_proj", "up_proj", "down_proj"),
        prefix="transformer.",
        buffers=(".attn.bias", ".attn.masked_bias"),
    )

    def build_layer(
        self, context: ModelContext, index: int, rotary: RotaryEmbedding
    ) -> DecoderLayer:
        """Decoder layer `index`."""
        scale = context.arch.attention_scale
        if context.hf_config.get("scale_attn_by_inverse_layer_idx"):
            scale /= index + 1
        self_attn = SelfAttention(context.at("self_attn"), index, rotary, scale=scale)
        return DecoderLayer(context, self_attn, PlainMLP(context.at("mlp")), self.build_norm)

    def build_norm(self, context: ModelContext) -> LayerNorm:
        """A norm of the hidden size."""
        return LayerNorm(context, context.arch.hidden_size, context.arch.norm_eps)
