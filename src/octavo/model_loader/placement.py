"""Placement: which elements of a checkpoint tensor go where, found out without any data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from octavo.models.common.weights import Target

# Changes in place that may come before the data: padding is cleared.
_HARMLESS = ("zero", "requires_grad")


@dataclass(frozen=True, eq=False, slots=True)
class Placement:
    """Elements of a checkpoint tensor, as strides over it, and the part of a parameter they fill.

    `source_offset` and `source_strides` count elements of the checkpoint tensor.
    """

    target: torch.Tensor
    source_offset: int
    source_strides: tuple[int, ...]

    @property
    def span(self) -> int:
        """Elements of the checkpoint tensor from the first to the last that is used."""
        if self.target.numel() == 0:
            return 0
        sizes = zip(self.target.shape, self.source_strides, strict=True)
        return 1 + sum((size - 1) * stride for size, stride in sizes)

    def view(self, data: torch.Tensor) -> torch.Tensor:
        """The elements to copy, from `data`: the flat ones of `span` from `source_offset` on."""
        return data.as_strided(self.target.shape, self.source_strides)

    def pieces(self, max_elements: int) -> Iterator[Placement]:
        """The same in parts along the first dimension, of so many elements where possible."""
        stride = self.source_strides[0] if self.source_strides else 0
        # A transposed tensor's rows are all over the file.
        if self.span <= max_elements or stride < max(self.source_strides):
            yield self
            return
        rows = max(max_elements // stride, 1)
        for first in range(0, self.target.shape[0], rows):
            part = self.target[first : first + rows]
            yield Placement(part, self.source_offset + first * stride, self.source_strides)


def placements_of(target: Target) -> list[Placement] | None:
    """Where the elements of a target's checkpoint tensor go.

    None where loading does more than copy: then the data must be given to the target itself.
    """
    probe = torch.empty(target.shape, device="meta")
    recorder = _CopyRecorder(probe)
    with recorder:
        target.load(probe)
    return recorder.placements


class _CopyRecorder(TorchFunctionMode):
    """Notes copies out of a tensor instead of making them."""

    def __init__(self, probe: torch.Tensor) -> None:
        super().__init__()
        self._base = probe
        self.placements: list[Placement] | None = []

    def __torch_function__(
        self,
        func: Any,
        kinds: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name = func.__name__
        if name == "copy_" and args[1].is_meta:
            self._note(*args[:2])
            return args[0]
        if name == "__setitem__" or (
            name[0] != "_" and name.endswith("_") and name.strip("_") not in _HARMLESS
        ):
            # Something is made of what was copied, which isn't there yet.
            self.placements = None
            return args[0]
        return func(*args, **(kwargs or {}))

    def _note(self, target: torch.Tensor, source: torch.Tensor) -> None:
        plain = source is self._base or source._base is self._base
        if not plain or target.shape != source.shape:
            self.placements = None
        elif self.placements is not None:
            offset, strides = int(source.storage_offset()), tuple(source.stride())
            self.placements.append(Placement(target, offset, strides))
