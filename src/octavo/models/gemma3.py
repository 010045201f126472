"""Gemma 3, the text models."""

from __future__ import annotations

from octavo.layers.norm import OffsetRMSNorm
from octavo.layers.rotary import RotaryEmbedding
from octavo.models.common.attention import head_norm_attention
from octavo.models.common.decoder import DecoderCausalLM
from octavo.models.common.decoder_layers import SandwichLayer
from octavo.models.common.mlp import GatedMLP
from octavo.models.context import ModelContext
from octavo.models.gemma import GemmaDecoder


class Gemma3ForCausalLM(DecoderCausalLM):
    """Gemma 2 with norms of q and k for its soft caps, five sliding layers to one that is not.

    Sliding layers rotate by a shorter wavelength (arXiv 2503.19786).
    """

    decoder = GemmaDecoder

    def build_layer(
        self, context: ModelContext, index: int, rotary: RotaryEmbedding
    ) -> SandwichLayer:
        """Decoder layer `index`."""
        self_attn = head_norm_attention(context.at("self_attn"), index, rotary, OffsetRMSNorm)
        return SandwichLayer(context, self_attn, GatedMLP(context.at("mlp")), self.build_norm)

    def build_norm(self, context: ModelContext) -> OffsetRMSNorm:
        """A norm of the hidden size."""
        return OffsetRMSNorm(context, context.arch.hidden_size, context.arch.norm_eps)
