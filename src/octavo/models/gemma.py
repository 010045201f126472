"""Gemma 1."""

from __future__ import annotations

import dataclasses

import torch

from octavo.layers.norm import OffsetRMSNorm
from octavo.models.common.decoder import Decoder, DecoderCausalLM
from octavo.models.context import ModelContext


class GemmaDecoder(Decoder):
    """Embeddings are multiplied by the root of the hidden size."""

    def embed(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """input_ids[T] -> [T, H]."""
        hidden: torch.Tensor = self.embed_tokens(input_ids)
        # The factor in the model's dtype, as in training: 55.5, not 55.4256, for 3072 in bfloat16.
        factor = torch.tensor(hidden.shape[-1] ** 0.5, dtype=hidden.dtype).item()
        return hidden * factor


class GemmaForCausalLM(DecoderCausalLM):
    """Llama's layers with GELU gates and norms whose weights are added to 1 (arXiv 2403.08295)."""

    decoder = GemmaDecoder

    def __init__(self, context: ModelContext) -> None:
        # Configs of the first version say "gelu" and mean its approximation.
        arch = dataclasses.replace(context.arch, hidden_act="gelu_pytorch_tanh")
        super().__init__(dataclasses.replace(context, arch=arch))

    def build_norm(self, context: ModelContext) -> OffsetRMSNorm:
        """A norm of the hidden size."""
        return OffsetRMSNorm(context, context.arch.hidden_size, context.arch.norm_eps)
