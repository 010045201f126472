"""EXAONE 3, 3.5 and 4."""

from __future__ import annotations

from octavo.layers.rotary import RotaryEmbedding
from octavo.models.common.attention import head_norm_attention
from octavo.models.common.decoder import DecoderCausalLM
from octavo.models.common.decoder_layers import PostNormLayer
from octavo.models.common.mlp import GatedMLP
from octavo.models.common.weights import CheckpointLayout
from octavo.models.context import ModelContext


class ExaoneForCausalLM(DecoderCausalLM):
    """Llama's layers under other names (arXiv 2412.04862)."""

    checkpoint = CheckpointLayout(
        names=(
            ("model.embed_tokens", "transformer.wte"),
            ("model.layers", "transformer.h"),
            ("model.norm", "transformer.ln_f"),
            ("self_attn.o_proj", "self_attn.out_proj"),
            ("self_attn", "attn.attention"),
            ("mlp.gate_proj", "mlp.c_fc_0"),
            ("mlp.up_proj", "mlp.c_fc_1"),
            ("mlp.down_proj", "mlp.c_proj"),
            ("input_layernorm", "ln_1"),
            ("post_attention_layernorm", "ln_2"),
        ),
        buffers=(".rotary.inv_freq",),
    )


class Exaone4ForCausalLM(DecoderCausalLM):
    """Norms after each block and of q and k heads; sliding ones rotate (arXiv 2507.11407)."""

    def build_layer(
        self, context: ModelContext, index: int, rotary: RotaryEmbedding
    ) -> PostNormLayer:
        """Decoder layer `index`."""
        self_attn = head_norm_attention(context.at("self_attn"), index, rotary)
        return PostNormLayer(context, self_attn, GatedMLP(context.at("mlp")), self.build_norm)
