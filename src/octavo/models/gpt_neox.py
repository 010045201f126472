"""GPT-NeoX and Pythia."""

from __future__ import annotations

from octavo.layers.norm import LayerNorm
from octavo.layers.rotary import RotaryEmbedding
from octavo.models.common.attention import SelfAttention
from octavo.models.common.decoder import DecoderCausalLM
from octavo.models.common.decoder_layers import DecoderLayer, ParallelLayer
from octavo.models.common.mlp import PlainMLP
from octavo.models.common.weights import CheckpointLayout
from octavo.models.context import ModelContext


class GPTNeoXForCausalLM(DecoderCausalLM):
    """Attention and MLP side by side, heads rotated in part (arXiv 2204.06745)."""

    checkpoint = CheckpointLayout(
        names=(
            ("model.embed_tokens", "gpt_neox.embed_in"),
            ("model.layers", "gpt_neox.layers"),
            ("model.norm", "gpt_neox.final_layer_norm"),
            ("lm_head", "embed_out"),
            ("self_attn", "attention"),
            ("o_proj", "dense"),
            ("mlp.up_proj", "mlp.dense_h_to_4h"),
            ("mlp.down_proj", "mlp.dense_4h_to_h"),
        ),
        whole={"qkv_proj": "query_key_value"},
        by_head=True,
        buffers=(".attention.bias", ".attention.masked_bias"),
    )

    def build_layer(
        self, context: ModelContext, index: int, rotary: RotaryEmbedding
    ) -> DecoderLayer | ParallelLayer:
        """Decoder layer `index`."""
        self_attn = SelfAttention(context.at("self_attn"), index, rotary)
        mlp = PlainMLP(context.at("mlp"))
        if context.hf_config.get("use_parallel_residual", True):
            return ParallelLayer(context, self_attn, mlp, self.build_norm, two_norms=True)
        return DecoderLayer(context, self_attn, mlp, self.build_norm)

    def build_norm(self, context: ModelContext) -> LayerNorm:
        """A norm of the hidden size."""
        return LayerNorm(context, context.arch.hidden_size, context.arch.norm_eps)
