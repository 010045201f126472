"""Gemma 2."""

from __future__ import annotations

from octavo.layers.norm import OffsetRMSNorm
from octavo.layers.rotary import RotaryEmbedding
from octavo.models.common.attention import SelfAttention
from octavo.models.common.decoder import DecoderCausalLM
from octavo.models.common.decoder_layers import SandwichLayer
from octavo.models.common.mlp import GatedMLP
from octavo.models.context import ModelContext
from octavo.models.gemma import GemmaDecoder


class Gemma2ForCausalLM(DecoderCausalLM):
    """Norms around each block, soft caps, every other layer sliding (arXiv 2408.00118)."""

    decoder = GemmaDecoder

    def build_layer(
        self, context: ModelContext, index: int, rotary: RotaryEmbedding
    ) -> SandwichLayer:
        """Decoder layer `index`."""
        self_attn = SelfAttention(context.at("self_attn"), index, rotary)
        return SandwichLayer(context, self_attn, GatedMLP(context.at("mlp")), self.build_norm)

    def build_norm(self, context: ModelContext) -> OffsetRMSNorm:
        """A norm of the hidden size."""
        return OffsetRMSNorm(context, context.arch.hidden_size, context.arch.norm_eps)
