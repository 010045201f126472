"""StableLM 2 and StableLM 3B."""

from __future__ import annotations

import torch

from octavo.layers.norm import LayerNorm
from octavo.layers.rotary import RotaryEmbedding
from octavo.models.common.attention import HeadLayerNorm, LayerNormAttention, SelfAttention
from octavo.models.common.decoder import DecoderCausalLM
from octavo.models.common.decoder_layers import DecoderLayer, ParallelLayer
from octavo.models.common.mlp import GatedMLP
from octavo.models.common.weights import WeightMap, weight_map
from octavo.models.context import ModelContext


class SeparateHeadLayerNorm(HeadLayerNorm):
    """The weight comes in one tensor per head."""

    def shard_shapes(self, param: str) -> list[tuple[int, ...]]:
        """One per head of the model."""
        return [tuple(self.weight.shape[1:])] * self._heads.full

    def load_shard(self, param: str, index: int, tensor: torch.Tensor) -> None:
        """Copy head `index`, if this rank has it."""
        row = index - self._heads.start
        if 0 <= row < self._heads.size:
            self.weight.data[row].copy_(tensor)


class StableLmAttention(LayerNormAttention):
    """Attention whose norms of heads are stored apart."""

    head_norm = SeparateHeadLayerNorm


class StableLmForCausalLM(DecoderCausalLM):
    """LayerNorms, partly rotated heads; by the config blocks side by side and norms of heads."""

    def __init__(self, context: ModelContext) -> None:
        super().__init__(context)
        self._heads = {"q": context.arch.num_heads, "k": context.arch.num_kv_heads}

    def build_layer(
        self, context: ModelContext, index: int, rotary: RotaryEmbedding
    ) -> DecoderLayer | ParallelLayer:
        """Decoder layer `index`."""
        config = context.hf_config
        attention = StableLmAttention if config.get("qk_layernorm") else SelfAttention
        self_attn = attention(context.at("self_attn"), index, rotary)
        mlp = GatedMLP(context.at("mlp"))
        if config.get("use_parallel_residual"):
            return ParallelLayer(context, self_attn, mlp, self.build_norm)
        return DecoderLayer(context, self_attn, mlp, self.build_norm)

    def build_norm(self, context: ModelContext) -> LayerNorm:
        """A norm of the hidden size."""
        return LayerNorm(context, context.arch.hidden_size, context.arch.norm_eps)

    def weight_map(self) -> WeightMap:
        """The checkpoint's tensors, in Hugging Face's names."""
        norms = {
            f"{part}_norm": tuple(f"{part}_layernorm.norms.{head}" for head in range(count))
            for part, count in self._heads.items()
        }
        return weight_map(self, {**self.packed_modules, **norms}, self.checkpoint)
