"""LayerContexts for tests, as any rank of a group whose collectives do nothing."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from octavo.distributed.group import SingleRank
from octavo.kernels.op import reference_kernels
from octavo.layers.context import LayerContext
from octavo.layers.quantization.methods.unquantized import Unquantized


@dataclass(frozen=True)
class LoneRank:
    """One rank of several: collectives return its own part, tests put the parts together."""

    rank: int
    size: int

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        return x


def layer_context(rank: int = 0, size: int = 1, prefix: str = "model.layer", **changes):
    facts = {
        "dtype": torch.float32,
        "device": torch.device("cpu"),
        "kernels": reference_kernels(),
        "group": SingleRank() if size == 1 else LoneRank(rank, size),
        "quantization": Unquantized(),
        "prefix": prefix,
    }
    return LayerContext(**{**facts, **changes})


def load_all(layer, tensors: dict[str, list[torch.Tensor]]):
    """Give a layer its checkpoint tensors, check their shapes, prepare it."""
    for param, parts in tensors.items():
        assert layer.shard_shapes(param) == [tuple(part.shape) for part in parts]
        for index, part in enumerate(parts):
            layer.load_shard(param, index, part)
    if hasattr(layer, "process_after_load"):
        layer.process_after_load()
    return layer
