"""What the rest of octavo expects of a model, as protocols."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Protocol, runtime_checkable

import torch

from octavo.attention.interface import AttentionContext
from octavo.models.common.weights import WeightMap
from octavo.models.context import ModelContext


@runtime_checkable
class CausalLM(Protocol):
    """A language model over T tokens of a step, whose rows the attention context knows.

    Instances are torch modules.
    """

    # Fused module -> the checkpoint modules it is made of, in order ("qkv_proj": q, k, v).
    packed_modules: ClassVar[Mapping[str, tuple[str, ...]]]

    def __init__(self, context: ModelContext) -> None: ...

    def forward(
        self, input_ids: torch.Tensor, positions: torch.Tensor, attn: AttentionContext
    ) -> torch.Tensor:
        """input_ids[T] int32 or int64, positions[T] int64 -> hidden states [T, H], normed."""
        ...

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden[R, H] -> [R, vocab_size] in the model's dtype."""
        ...

    def weight_map(self) -> WeightMap:
        """Which checkpoint tensors the model takes, and where they go."""
        ...

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Take named checkpoint tensors, one at a time; returns the names that were used.

        Raises CheckpointError for a tensor of another shape.
        """
        ...
