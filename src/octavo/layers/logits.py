"""VocabLogits: hidden states to logits of the whole vocabulary."""

from __future__ import annotations

import torch
from torch import nn

from octavo.layers.context import LayerContext
from octavo.layers.embedding import ParallelLMHead


class VocabLogits(nn.Module):
    """Gathers the ranks' parts and cuts the padding off (vLLM calls this layer LogitsProcessor)."""

    def __init__(self, context: LayerContext, vocab_size: int) -> None:
        super().__init__()
        self._group = context.group
        self._vocab_size = vocab_size

    def forward(self, lm_head: ParallelLMHead, hidden: torch.Tensor) -> torch.Tensor:
        """hidden[R, H] -> [R, vocab_size] in the model's dtype; rows may be strided."""
        logits = self._group.all_gather(lm_head(hidden))
        return logits[:, : self._vocab_size]
