"""Qwen3, the dense models."""

from __future__ import annotations

from octavo.layers.rotary import RotaryEmbedding
from octavo.models.common.attention import head_norm_attention
from octavo.models.common.decoder import DecoderCausalLM
from octavo.models.common.decoder_layers import DecoderLayer
from octavo.models.common.mlp import GatedMLP
from octavo.models.context import ModelContext


class Qwen3ForCausalLM(DecoderCausalLM):
    """Llama's layers with an RMSNorm on every head of q and k (arXiv 2505.09388)."""

    def build_layer(
        self, context: ModelContext, index: int, rotary: RotaryEmbedding
    ) -> DecoderLayer:
        """Decoder layer `index`."""
        self_attn = head_norm_attention(context.at("self_attn"), index, rotary)
        return DecoderLayer(context, self_attn, GatedMLP(context.at("mlp")), self.build_norm)
