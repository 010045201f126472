"""What the rest of octavo expects of a model, as protocols."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Protocol, runtime_checkable

import torch

from octavo.attention.interface import AttentionContext
from octavo.models.common.weights import WeightMap
from octavo.models.context import ModelContext


class Model(Protocol):
    """A model over T tokens of a step, whose rows the attention context knows.

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

    def weight_map(self) -> WeightMap:
        """Which checkpoint tensors the model takes, and where they go."""
        ...

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Take named checkpoint tensors, one at a time; returns the names that were used.

        Raises CheckpointError for a tensor of another shape.
        """
        ...


@runtime_checkable
class CausalLM(Model, Protocol):
    """A language model."""

    def forward_with_states(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        attn: AttentionContext,
        layers: Sequence[int],
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """What `forward` returns, and hidden states [T, H] by layer.

        Layers are counted as HiddenStatesParams does, from 0; more than those asked for may come.
        """
        ...

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden[R, H] -> [R, vocab_size] in the model's dtype."""
        ...


@runtime_checkable
class PoolingModel(Model, Protocol):
    """A model whose hidden states become vectors or scores."""

    def project(self, vectors: torch.Tensor) -> torch.Tensor:
        """vectors[N, H] float32, of texts or of tokens -> [N, E] embeddings or logits, float32."""
        ...
