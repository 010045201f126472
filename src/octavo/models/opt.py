"""OPT."""

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
from octavo.types.errors import ConfigError

_POSITION_OFFSET = 2  # the first two rows of the table belong to no position


class OPTDecoder(Decoder):
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
            context, arch.max_position_embeddings, arch.hidden_size, _POSITION_OFFSET
        )

    def embed(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """input_ids[T], positions[T] -> [T, H]."""
        hidden: torch.Tensor = self.embed_tokens(input_ids) + self.embed_positions(positions)
        return hidden


class OPTForCausalLM(DecoderCausalLM):
    """LayerNorms, learned positions and plain MLPs (arXiv 2205.01068); not the 350M model."""

    decoder = OPTDecoder
    checkpoint = CheckpointLayout(
        names=(
            ("model", "model.decoder"),
            ("decoder.norm", "decoder.final_layer_norm"),
            ("self_attn.o_proj", "self_attn.out_proj"),
            ("mlp.up_proj", "fc1"),
            ("mlp.down_proj", "fc2"),
            ("input_layernorm", "self_attn_layer_norm"),
            ("post_attention_layernorm", "final_layer_norm"),
        ),
    )

    def __init__(self, context: ModelContext) -> None:
        width = context.hf_config.get("word_embed_proj_dim")
        if width not in (None, context.arch.hidden_size):
            raise ConfigError(
                f"word_embed_proj_dim={width} differs from hidden_size in the model's config, "
                "which octavo's own class does not support; try --model-impl transformers"
            )
        super().__init__(context)

    def build_layer(
        self, context: ModelContext, index: int, rotary: RotaryEmbedding
    ) -> DecoderLayer:
        """Decoder layer `index`."""
        self_attn = SelfAttention(context.at("self_attn"), index, rotary)
        return DecoderLayer(context, self_attn, PlainMLP(context.at("mlp")), self.build_norm)

    def build_norm(self, context: ModelContext) -> LayerNorm:
        """A norm of the hidden size."""
        return LayerNorm(context, context.arch.hidden_size, context.arch.norm_eps)
