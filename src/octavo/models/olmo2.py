"""OLMo 2 and 3."""

from __future__ import annotations

from octavo.layers.rotary import RotaryEmbedding
from octavo.models.common.attention import WideNormAttention
from octavo.models.common.decoder import DecoderCausalLM
from octavo.models.common.decoder_layers import PostNormLayer
from octavo.models.common.mlp import GatedMLP
from octavo.models.context import ModelContext


class Olmo2ForCausalLM(DecoderCausalLM):
    """Norms after each block, and over all of q and k (arXiv 2501.00656)."""

    def build_layer(
        self, context: ModelContext, index: int, rotary: RotaryEmbedding
    ) -> PostNormLayer:
        """Decoder layer `index`."""
        self_attn = WideNormAttention(context.at("self_attn"), index, rotary)
        return PostNormLayer(context, self_attn, GatedMLP(context.at("mlp")), self.build_norm)


class Olmo3ForCausalLM(Olmo2ForCausalLM):
    """OLMo 2 with three sliding layers to one that sees everything."""
