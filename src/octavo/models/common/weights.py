"""WeightMap: from the names in a checkpoint to the parameters, fused or divided, that take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from octavo.layers.sharding import ShardedWeights
from octavo.types.errors import CheckpointError

# Buffers that old checkpoints carry although they follow from the config.
_DERIVED = ("rotary_emb.inv_freq",)


@dataclass(frozen=True, eq=False)
class WeightTarget:
    """Where one checkpoint tensor goes: part `index` of parameter `param` of `module`."""

    module: nn.Module
    param: str
    index: int
    shape: tuple[int, ...]  # in the checkpoint

    def load(self, tensor: torch.Tensor) -> None:
        """Copy the tensor, or this rank's part of it, converting the dtype."""
        if isinstance(self.module, ShardedWeights):
            self.module.load_shard(self.param, self.index, tensor)
        else:
            self.module.get_parameter(self.param).data.copy_(tensor)


@dataclass(frozen=True, eq=False)
class WeightMap:
    """Checkpoint names -> targets, and the names that a checkpoint may hold besides."""

    targets: Mapping[str, WeightTarget]
    tied: frozenset[str]  # second names of tensors in `targets`

    def ignores(self, name: str) -> bool:
        """Whether a tensor of this name is known and not needed."""
        return name in self.tied or name.endswith(_DERIVED)

    def load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Copy each tensor to its place; returns the names that were used."""
        used = set()
        for name, tensor in weights:
            if self.ignores(name):
                continue
            target = self.targets.get(name)
            if target is None:
                raise CheckpointError(f"the model has no place for the tensor {name}")
            if tuple(tensor.shape) != target.shape:
                raise CheckpointError(
                    f"{name} has shape {list(tensor.shape)}; the model's config says "
                    f"{list(target.shape)}"
                )
            target.load(tensor)
            used.add(name)
        return used


def weight_map(model: nn.Module, packed_modules: Mapping[str, tuple[str, ...]]) -> WeightMap:
    """Every parameter of `model` under its checkpoint names, fused ones as their parts."""
    targets: dict[str, WeightTarget] = {}
    tied: set[str] = set()
    seen: set[int] = set()
    for path, module in model.named_modules():
        parent, _, last = path.rpartition(".")
        for param, value in module.named_parameters(recurse=False):
            names = [
                f"{parent}.{part}.{param}" if parent else f"{part}.{param}"
                for part in packed_modules.get(last, (last,))
            ]
            if id(value) in seen:
                tied.update(names)
                continue
            seen.add(id(value))
            shapes = (
                module.shard_shapes(param)
                if isinstance(module, ShardedWeights)
                else [tuple(value.shape)]
            )
            for index, (name, shape) in enumerate(zip(names, shapes, strict=True)):
                targets[name] = WeightTarget(module, param, index, shape)
    return WeightMap(targets, frozenset(tied))
