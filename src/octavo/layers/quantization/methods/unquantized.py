"""Unquantized: weights in the model's own dtype."""

from __future__ import annotations

import torch
from torch import nn

from octavo.kernels.op import BoundLinear, KernelSet
from octavo.layers.quantization.interface import LinearMethod, LinearShape, ParamDims


class UnquantizedLinear:
    """weight[N, K] and bias[N], multiplied by whatever the kernels find fastest for them."""

    _bound: BoundLinear

    def __init__(self, kernels: KernelSet) -> None:
        self._kernels = kernels
        self.nbytes = 0

    def create_weights(self, layer: nn.Module, shape: LinearShape) -> dict[str, ParamDims]:
        """Register `weight` and, if there is one, `bias`."""

        def empty(*size: int) -> nn.Parameter:
            data = torch.empty(size, dtype=shape.dtype, device=shape.device)
            return nn.Parameter(data, requires_grad=False)

        layer.register_parameter("weight", empty(shape.out_features, shape.in_features))
        layer.register_parameter("bias", empty(shape.out_features) if shape.bias else None)
        return {"weight": ParamDims(output=0, input=1), "bias": ParamDims(output=0)}

    def process_after_load(self, layer: nn.Module) -> None:
        """Let the kernels repack the weight; the layer gives its own up if they did."""
        parameters = dict(layer.named_parameters(recurse=False))
        self._bound = self._kernels.prepare_linear(parameters["weight"], parameters.get("bias"))
        self.nbytes = self._bound.nbytes
        if self.nbytes:
            layer.register_parameter("weight", None)

    @property
    def bound(self) -> BoundLinear:
        """The product, once weights are loaded."""
        return self._bound

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, K] -> [T, N]."""
        return self._bound(x)


class Unquantized:
    """Every linear layer keeps plain weights."""

    def linear_method(self, kernels: KernelSet, prefix: str) -> LinearMethod:
        """A method for one layer; `prefix` makes no difference."""
        return UnquantizedLinear(kernels)

    def vocabulary_method(self, kernels: KernelSet, prefix: str) -> LinearMethod:
        """The same as for other layers."""
        return UnquantizedLinear(kernels)
