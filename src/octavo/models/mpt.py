"""MPT."""

from __future__ import annotations

import math

import torch

from octavo.layers.norm import LayerNorm
from octavo.layers.rotary import RotaryEmbedding
from octavo.models.common.attention import SelfAttention
from octavo.models.common.decoder import DecoderCausalLM
from octavo.models.common.decoder_layers import DecoderLayer
from octavo.models.common.mlp import PlainMLP
from octavo.models.common.weights import CheckpointLayout
from octavo.models.context import ModelContext
from octavo.types.errors import ConfigError

# Entries of attn_config whose other values this class has not.
_ONLY = {
    "alibi": (True, None),
    "attn_type": ("multihead_attention", None),
    "clip_qkv": (None,),
    "prefix_lm": (False, None),
    "qk_ln": (False, None),
}


class MptForCausalLM(DecoderCausalLM):
    """No positions but scores biased by distance (ALiBi), no biases."""

    checkpoint = CheckpointLayout(
        names=(
            ("model.embed_tokens", "transformer.wte"),
            ("model.layers", "transformer.blocks"),
            ("model.norm", "transformer.norm_f"),
            ("self_attn", "attn"),
            ("attn.o_proj", "attn.out_proj"),
            ("mlp", "ffn"),
            ("input_layernorm", "norm_1"),
            ("post_attention_layernorm", "norm_2"),
        ),
        whole={"qkv_proj": "Wqkv"},
    )

    def __init__(self, context: ModelContext) -> None:
        settings = context.hf_config.get("attn_config") or {}
        for key, values in _ONLY.items():
            if settings.get(key) not in values:
                raise ConfigError(
                    f"attn_config has {key}={settings[key]!r}, which octavo's MPT does not support"
                )
        super().__init__(context)

    def build_layer(
        self, context: ModelContext, index: int, rotary: RotaryEmbedding
    ) -> DecoderLayer:
        """Decoder layer `index`."""
        settings = context.hf_config.get("attn_config") or {}
        self_attn = SelfAttention(
            context.at("self_attn"),
            index,
            rotary,
            scale=settings.get("softmax_scale"),
            alibi_slopes=_slopes(context.arch.num_heads, settings.get("alibi_bias_max") or 8),
        )
        return DecoderLayer(context, self_attn, PlainMLP(context.at("mlp")), self.build_norm)

    def build_norm(self, context: ModelContext) -> LayerNorm:
        """A norm of the hidden size, without bias."""
        return LayerNorm(context, context.arch.hidden_size, context.arch.norm_eps, bias=False)


class MPTForCausalLM(MptForCausalLM):
    """The name that configs made before transformers had the model use."""


def _slopes(num_heads: int, largest_exponent: float) -> torch.Tensor:
    """Slopes of the next power of two of heads; for fewer, every other one first."""
    padded = 2 ** math.ceil(math.log2(num_heads))
    exponents = torch.arange(1, padded + 1, dtype=torch.float32) * (largest_exponent / padded)
    slopes = torch.exp2(-exponents)
    if padded != num_heads:
        slopes = torch.cat([slopes[1::2], slopes[::2]])[:num_heads]
    return slopes
