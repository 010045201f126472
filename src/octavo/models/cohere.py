"""Cohere's Command R and Command R7B."""

from __future__ import annotations

from octavo.layers.norm import LayerNorm
from octavo.layers.rotary import RotaryEmbedding
from octavo.models.common.attention import LayerNormAttention, SelfAttention
from octavo.models.common.decoder import DecoderCausalLM
from octavo.models.common.decoder_layers import ParallelLayer
from octavo.models.common.mlp import GatedMLP
from octavo.models.context import ModelContext

_DEFAULT_LOGIT_SCALE = 0.0625


class CohereForCausalLM(DecoderCausalLM):
    """Attention and MLP side by side over one LayerNorm; neighbouring elements are rotated."""

    rope_is_neox = False

    def build_layer(
        self, context: ModelContext, index: int, rotary: RotaryEmbedding
    ) -> ParallelLayer:
        """Decoder layer `index`."""
        attention = LayerNormAttention if context.hf_config.get("use_qk_norm") else SelfAttention
        self_attn = attention(context.at("self_attn"), index, rotary)
        return ParallelLayer(context, self_attn, GatedMLP(context.at("mlp")), self.build_norm)

    def build_norm(self, context: ModelContext) -> LayerNorm:
        """A norm of the hidden size, without bias."""
        return LayerNorm(context, context.arch.hidden_size, context.arch.norm_eps, bias=False)

    def logits_scale(self, context: ModelContext) -> float:
        """The config's logit_scale."""
        return float(context.hf_config.get("logit_scale") or _DEFAULT_LOGIT_SCALE)


class Cohere2ForCausalLM(CohereForCausalLM):
    """Three sliding layers, which alone rotate, to one that sees everything."""
