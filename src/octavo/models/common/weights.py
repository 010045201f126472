"""WeightMap: from the names in a checkpoint to the parameters, fused or divided, that take them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import nn

from octavo.layers.linear import QKVParallelLinear
from octavo.layers.sharding import ShardedWeights
from octavo.types.errors import CheckpointError

# Buffers that old checkpoints carry although they follow from the config.
_DERIVED = ("rotary_emb.inv_freq",)


class Target(Protocol):
    """Where one checkpoint tensor goes."""

    @property
    def shape(self) -> tuple[int, ...]:
        """In the checkpoint."""
        ...

    def load(self, tensor: torch.Tensor) -> None:
        """Copy the tensor, or this rank's part of it, converting the dtype."""
        ...


@dataclass(frozen=True, eq=False)
class WeightTarget:
    """Part `index` of parameter `param` of `module`; `transposed`: the tensor is [in, out]."""

    module: nn.Module
    param: str
    index: int
    shape: tuple[int, ...]
    transposed: bool = False

    def load(self, tensor: torch.Tensor) -> None:
        """See Target."""
        if self.transposed:
            tensor = tensor.T
        if isinstance(self.module, ShardedWeights):
            self.module.load_shard(self.param, self.index, tensor)
        else:
            self.module.get_parameter(self.param).data.copy_(tensor)


@dataclass(frozen=True, eq=False)
class WholeTarget:
    """Every part of a fused parameter in one tensor, one below the other or head by head.

    `heads`: (KV heads, head size) when the rows are, per KV head, its queries, its key, its value.
    """

    parts: tuple[WeightTarget, ...]
    shape: tuple[int, ...]
    transposed: bool = False
    heads: tuple[int, int] | None = None

    def load(self, tensor: torch.Tensor) -> None:
        """See Target."""
        if self.transposed:
            tensor = tensor.T
        for part, rows in zip(self.parts, self._rows(tensor), strict=True):
            part.load(rows)

    def _rows(self, tensor: torch.Tensor) -> Iterable[torch.Tensor]:
        if self.heads is None:
            return torch.split(tensor, [part.shape[0] for part in self.parts])
        by_head = torch.unflatten(tensor, 0, (self.heads[0], -1, self.heads[1]))
        parts = torch.split(by_head, [by_head.shape[1] - 2, 1, 1], dim=1)
        return [part.flatten(0, 2) for part in parts]


@dataclass(frozen=True, eq=False)
class CheckpointLayout:
    """How checkpoints of a family differ from the model's own names and orders.

    `names` are (ours, theirs): module paths, or parts of them, replaced in turn. `whole` maps a
    fused module to the checkpoint module that holds all its parts; `by_head` says that a whole
    qkv tensor goes head by head. `transposed` are modules whose weights are [inputs, outputs].
    `prefix` is an outermost module that files may leave out, `buffers` ends of names to ignore.
    """

    names: tuple[tuple[str, str], ...] = ()
    whole: Mapping[str, str] = field(default_factory=dict)
    by_head: bool = False
    transposed: Collection[str] = ()
    prefix: str = ""
    buffers: tuple[str, ...] = ()

    def name(self, path: str) -> str:
        """The checkpoint's name of a parameter."""
        dotted = f".{path}."
        for ours, theirs in self.names:
            dotted = dotted.replace(f".{ours}.", f".{theirs}." if theirs else ".")
        return dotted[1:-1]


@dataclass(frozen=True, eq=False)
class WeightMap:
    """Checkpoint names -> targets, and the names that a checkpoint may hold besides."""

    targets: Mapping[str, Target]
    tied: frozenset[str]  # second names of tensors in `targets`
    prefix: str = ""  # that a checkpoint's names may lack
    buffers: tuple[str, ...] = ()  # ends of further names to ignore

    def canonical(self, name: str) -> str:
        """The name that `targets` has for a checkpoint's."""
        return name if name.startswith(self.prefix) else self._with_prefix(name)

    def ignores(self, name: str) -> bool:
        """Whether a tensor of this name is known and not needed."""
        return name in self.tied or name.endswith(_DERIVED + self.buffers)

    def load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Copy each tensor to its place; returns the names that were used."""
        used = set()
        for stored, tensor in weights:
            name = self.canonical(stored)
            if self.ignores(name):
                continue
            target = self.targets.get(name)
            if target is None:
                raise CheckpointError(f"the model has no place for the tensor {stored}")
            if tuple(tensor.shape) != target.shape:
                raise CheckpointError(
                    f"{stored} has shape {list(tensor.shape)}; the model's config says "
                    f"{list(target.shape)}"
                )
            target.load(tensor)
            used.add(name)
        return used

    def _with_prefix(self, name: str) -> str:
        longer = self.prefix + name
        return longer if longer in self.targets or longer in self.tied else name


def weight_map(
    model: nn.Module,
    packed_modules: Mapping[str, tuple[str, ...]],
    layout: CheckpointLayout | None = None,
) -> WeightMap:
    """Every parameter of `model` under its checkpoint names, fused ones as their parts."""
    layout = layout or CheckpointLayout()
    targets: dict[str, Target] = {}
    tied: set[str] = set()
    seen: set[int] = set()
    for path, module in model.named_modules():
        last = path.rpartition(".")[2]
        for param, value in module.named_parameters(recurse=False):
            names = _names(path, param, packed_modules, layout)
            if id(value) in seen:
                tied.update(names)
                continue
            seen.add(id(value))
            transposed = last in layout.transposed and value.ndim > 1
            parts = _parts(module, param, value, transposed)
            if last in layout.whole:
                targets[names[0]] = _whole(parts, module, layout, transposed)
            else:
                targets.update(zip(names, parts, strict=True))
    return WeightMap(targets, frozenset(tied), layout.prefix, layout.buffers)


def _names(
    path: str, param: str, packed_modules: Mapping[str, tuple[str, ...]], layout: CheckpointLayout
) -> list[str]:
    """The checkpoint names of the tensors that a parameter is made of."""
    parent, _, last = path.rpartition(".")
    if last in layout.whole:
        modules: tuple[str, ...] = (layout.whole[last],)
    else:
        modules = packed_modules.get(last, (last,))
    start = f"{parent}." if parent else ""
    return [layout.name(f"{start}{module}.{param}") for module in modules]


def _parts(
    module: nn.Module, param: str, value: nn.Parameter, transposed: bool
) -> list[WeightTarget]:
    shapes = (
        module.shard_shapes(param) if isinstance(module, ShardedWeights) else [tuple(value.shape)]
    )
    return [
        WeightTarget(module, param, index, shape[::-1] if transposed else shape, transposed)
        for index, shape in enumerate(shapes)
    ]


def _whole(
    parts: list[WeightTarget], module: nn.Module, layout: CheckpointLayout, transposed: bool
) -> WholeTarget:
    shapes = [part.shape[::-1] if transposed else part.shape for part in parts]
    shape = (sum(shape[0] for shape in shapes), *shapes[0][1:])
    heads = None
    if layout.by_head and isinstance(module, QKVParallelLinear):
        heads = (shapes[1][0] // module.head_size, module.head_size)
    plain = tuple(
        WeightTarget(part.module, part.param, part.index, rows)
        for part, rows in zip(parts, shapes, strict=True)
    )
    return WholeTarget(plain, shape[::-1] if transposed else shape, transposed, heads)
