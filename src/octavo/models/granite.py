"""Granite 3, the dense models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from octavo.layers.rotary import RotaryEmbedding
from octavo.models.common.attention import SelfAttention
from octavo.models.common.decoder import Decoder, DecoderCausalLM, LayerBuilder
from octavo.models.common.decoder_layers import NormBuilder, ScaledLayer
from octavo.models.common.mlp import GatedMLP
from octavo.models.context import ModelContext
from octavo.types.errors import ConfigError


class GraniteDecoder(Decoder):
    """Embeddings are multiplied by the config's embedding_multiplier."""

    def __init__(
        self,
        context: ModelContext,
        build_layer: LayerBuilder,
        build_norm: NormBuilder,
        *,
        is_neox: bool,
    ) -> None:
        super().__init__(context, build_layer, build_norm, is_neox=is_neox)
        self._scale = _factor(context.hf_config, "embedding_multiplier")

    def embed(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """input_ids[T] -> [T, H]."""
        hidden: torch.Tensor = self.embed_tokens(input_ids)
        return hidden * self._scale


class GraniteForCausalLM(DecoderCausalLM):
    """Llama's layers with a multiplier on embeddings, scores, residuals and logits (muP)."""

    decoder = GraniteDecoder

    def build_layer(
        self, context: ModelContext, index: int, rotary: RotaryEmbedding
    ) -> ScaledLayer:
        """Decoder layer `index`."""
        self_attn = SelfAttention(context.at("self_attn"), index, rotary)
        scale = _factor(context.hf_config, "residual_multiplier")
        return ScaledLayer(context, self_attn, GatedMLP(context.at("mlp")), self.build_norm, scale)

    def logits_scale(self, context: ModelContext) -> float:
        """Logits are divided by logits_scaling."""
        return 1.0 / _factor(context.hf_config, "logits_scaling")


def _factor(hf_config: Mapping[str, Any], key: str) -> float:
    value = hf_config.get(key, 1.0)
    if not isinstance(value, int | float) or value == 0:
        raise ConfigError(f"{key}={value!r} in the model's config: expected a number, not 0")
    return float(value)
