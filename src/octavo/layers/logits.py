"""VocabLogits: hidden states to logits of the whole vocabulary."""

from __future__ import annotations

import torch
from torch import nn

from octavo.layers.context import LayerContext
from octavo.layers.embedding import ParallelLMHead


class VocabLogits(nn.Module):
    """Gathers the ranks' parts and cuts the padding off (vLLM calls this layer LogitsProcessor).

    Logits are multiplied by `scale`; with a `soft_cap` they become cap * tanh(logits / cap).
    """

    def __init__(
        self,
        context: LayerContext,
        vocab_size: int,
        *,
        scale: float = 1.0,
        soft_cap: float | None = None,
    ) -> None:
        super().__init__()
        self._group = context.group
        self._vocab_size = vocab_size
        self._scale = scale
        self._soft_cap = soft_cap

    def forward(self, lm_head: ParallelLMHead, hidden: torch.Tensor) -> torch.Tensor:
        """hidden[R, H] -> [R, vocab_size] in the model's dtype; rows may be strided."""
        logits = self._group.all_gather(lm_head(hidden))[:, : self._vocab_size]
        if self._scale != 1.0:
            logits = logits * self._scale
        if self._soft_cap is not None:
            logits = torch.tanh(logits / self._soft_cap) * self._soft_cap
        return logits
