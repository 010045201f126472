"""PoolingRequestOutput: what users of embed, classify, score and encode get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from octavo.types.outputs import RequestMetrics

Array = npt.NDArray[np.float32]


class PooledTensor(msgspec.Struct, array_like=True, frozen=True):
    """A float32 array on its way between processes."""

    shape: tuple[int, ...]
    data: bytes  # little-endian, rows one after the other

    @classmethod
    def of(cls, array: Array) -> PooledTensor:
        """A copy of `array`."""
        return cls(array.shape, array.astype("<f4", copy=False).tobytes())

    def array(self) -> Array:
        """A read-only view."""
        return np.frombuffer(self.data, dtype="<f4").reshape(self.shape)


@dataclass(slots=True)
class PoolingOutput:
    """The result as it is: [N] of a text, or [tokens, N]."""

    data: Array


@dataclass(slots=True)
class EmbeddingOutput:
    """A text as a vector."""

    embedding: list[float]

    @property
    def hidden_size(self) -> int:
        """Elements of the vector."""
        return len(self.embedding)


@dataclass(slots=True)
class ClassificationOutput:
    """A score for every label."""

    probs: list[float]

    @property
    def num_classes(self) -> int:
        """Labels."""
        return len(self.probs)


@dataclass(slots=True)
class ScoringOutput:
    """How well two texts go together."""

    score: float


Output = TypeVar("Output")


@dataclass(slots=True)
class PoolingRequestOutput(Generic[Output]):
    """The result of one request; `outputs` is one of the outputs above."""

    request_id: str
    outputs: Output
    prompt_token_ids: Sequence[int]
    finished: bool = True
    num_cached_tokens: int | None = None
    metrics: RequestMetrics = field(default_factory=RequestMetrics)


EmbeddingRequestOutput = PoolingRequestOutput[EmbeddingOutput]
ClassificationRequestOutput = PoolingRequestOutput[ClassificationOutput]
ScoringRequestOutput = PoolingRequestOutput[ScoringOutput]
