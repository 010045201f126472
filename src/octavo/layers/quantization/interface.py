"""QuantizationConfig and LinearMethod: how linear layers store and multiply their weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from octavo.checkpoints.group_codes import GroupCodes
from octavo.kernels.op import KernelSet
from octavo.utils.registry import Registry


@dataclass(frozen=True)
class ParamDims:
    """Which dimension of a parameter runs over a layer's outputs and which over its inputs."""

    output: int | None = None
    input: int | None = None


@dataclass(frozen=True)
class LinearShape:
    """One rank's part of a linear layer, in elements."""

    in_features: int
    out_features: int
    bias: bool
    dtype: torch.dtype  # of the layer's input and output
    device: torch.device


class LinearMethod(Protocol):
    """How one linear layer keeps its weight; one object per layer."""

    def create_weights(self, layer: nn.Module, shape: LinearShape) -> dict[str, ParamDims]:
        """Register uninitialised parameters on `layer`, named as the checkpoint names them."""
        ...

    def process_after_load(self, layer: nn.Module) -> None:
        """Bring loaded parameters into the form that apply() uses; called once.

        May set parameters of `layer` to None when it keeps the data elsewhere.
        """
        ...

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, in_features] -> [T, out_features], the bias added."""
        ...

    @property
    def nbytes(self) -> int:
        """Device memory held outside the layer's parameters."""
        ...


@runtime_checkable
class PackingMethod(LinearMethod, Protocol):
    """A method that packs a weight while it is read: no layer holds it in float32.

    Its parameter `weight` has a shape and no memory, and goes when everything is loaded. An
    embedding and an output layer that is tied to it share one method.
    """

    takes_codes: bool  # whether codes of a checkpoint are kept as they are
    num_packed: int  # parts of the weight that are packed
    num_plain: int  # and that are kept as they came

    def load_rows(self, first: int, rows: torch.Tensor | GroupCodes) -> None:
        """Take in the weights [n, in_features] of the outputs from `first` on."""
        ...

    def lookup(self, ids: torch.Tensor) -> torch.Tensor:
        """Weights of the outputs ids[T] -> [T, in_features]."""
        ...


class QuantizationConfig(Protocol):
    """A way of storing weights, as the checkpoint's own settings describe it."""

    def linear_method(self, kernels: KernelSet, prefix: str) -> LinearMethod:
        """The method for the linear layer at module path `prefix`."""
        ...

    def vocabulary_method(self, kernels: KernelSet, prefix: str) -> LinearMethod:
        """The method for a token embedding or an output layer, which forgive the least."""
        ...


QUANT_METHODS: Registry[type[QuantizationConfig]] = Registry(
    "quantization method",
    {
        "none": "octavo.layers.quantization.methods.unquantized:Unquantized",
        "int8": "octavo.layers.quantization.methods.int8:Int8",
        "int4": "octavo.layers.quantization.methods.int4:Int4",
        "gguf": "octavo.layers.quantization.methods.gguf:GGUF",
    },
)
