"""PackedLinearMethod: a linear layer or an embedding whose weight stays packed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from octavo.checkpoints.group_codes import SPAN, GroupCodes
from octavo.kernels.op import BoundLinear, KernelSet
from octavo.kernels.packed_weights import PackedKernels, PackedLinear, PackedPart
from octavo.layers.quantization.interface import LinearShape, ParamDims
from octavo.types.errors import ConfigError

Quantize = Callable[[torch.Tensor], GroupCodes]


class PackedLinearMethod:
    """Packed parts, one for each checkpoint tensor, and plain ones where packing isn't possible.

    `quantize` makes codes of float weights; None: those that come as floats stay floats, as do
    weights whose inputs are no multiple of SPAN.
    """

    _bound: Callable[[torch.Tensor], torch.Tensor]

    def __init__(self, kernels: KernelSet, prefix: str, quantize: Quantize | None) -> None:
        if kernels.packed is None:
            raise ConfigError(
                f"{prefix}: this device's kernels ({kernels.name}) multiply no packed weights; "
                "leave out --quantization"
            )
        self.takes_codes = quantize is None
        self.num_plain = 0
        self._kernels = kernels
        self._packed: PackedKernels = kernels.packed()
        self._quantize = quantize
        self._parts: list[tuple[int, PackedPart]] = []
        self._plain: list[tuple[int, torch.Tensor]] = []
        self._bound_bytes = 0  # of repacked copies of the plain parts

    @property
    def num_packed(self) -> int:
        """Parts that are packed."""
        return len(self._parts)

    @property
    def nbytes(self) -> int:
        """Memory of all parts."""
        packed = sum(part.nbytes for _, part in self._parts)
        return packed + sum(tensor.nbytes for _, tensor in self._plain) + self._bound_bytes

    def create_weights(self, layer: nn.Module, shape: LinearShape) -> dict[str, ParamDims]:
        """Register `weight`, which has no memory, and `bias`, which has."""
        self._layer, self._shape = layer, shape
        nothing = torch.empty(1, dtype=shape.dtype, device=shape.device)
        self._stand_in = nn.Parameter(
            nothing.expand(shape.out_features, shape.in_features), requires_grad=False
        )
        layer.register_parameter("weight", self._stand_in)
        bias = None
        if shape.bias:
            data = torch.empty(shape.out_features, dtype=shape.dtype, device=shape.device)
            bias = nn.Parameter(data, requires_grad=False)
        layer.register_parameter("bias", bias)
        return {"weight": ParamDims(output=0, input=1), "bias": ParamDims(output=0)}

    def load_rows(self, first: int, rows: torch.Tensor | GroupCodes) -> None:
        """Pack the weights [n, K] of the outputs from `first` on."""
        if isinstance(rows, torch.Tensor) and self._quantize and rows.shape[1] % SPAN == 0:
            rows = self._quantize(rows)
        if isinstance(rows, GroupCodes):
            self._parts.append((first, self._packed.pack(rows)))
        else:
            copy = torch.empty(rows.shape, dtype=self._shape.dtype, device=self._shape.device)
            self._plain.append((first, copy.copy_(rows)))
            self.num_plain += 1

    def process_after_load(self, layer: nn.Module) -> None:
        """Bind what has been packed for the products of `layer`, whose parameter goes."""
        parameters = dict(layer.named_parameters(recurse=False))
        weight, bias = parameters.get("weight"), parameters.get("bias")
        if weight is not None and weight is not self._stand_in:
            # The model tied it to a parameter that is loaded elsewhere.
            self.load_rows(0, weight.detach())
        layer.register_parameter("weight", None)
        self._bound = self._packed_product(bias) if self._parts else self._plain_product(bias)
        if layer is self._layer and self._bound_bytes:
            self._plain.clear()  # no embedding looks them up

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, K] -> [T, N]."""
        return self._bound(x)

    def lookup(self, ids: torch.Tensor) -> torch.Tensor:
        """Weights of the outputs ids[T] -> [T, K]; for a weight in one part."""
        if self._plain:
            return self._kernels.embedding(ids, self._plain[0][1])
        return self._packed.lookup(self._parts[0][1], ids).to(self._shape.dtype)

    def _packed_product(self, bias: torch.Tensor | None) -> MixedLinear | PackedLinear:
        product = self._packed.bind(self._parts, bias, self._shape.out_features)
        if not self._plain and self._shape.dtype == torch.float32:
            return product
        plain: list[tuple[slice, BoundLinear]] = []
        for first, tensor in self._plain:
            columns = slice(first, first + tensor.shape[0])
            part = self._kernels.prepare_linear(tensor, None if bias is None else bias[columns])
            plain.append((columns, part))
            self._bound_bytes += part.nbytes
        return MixedLinear(product, plain, self._shape.dtype)

    def _plain_product(self, bias: torch.Tensor | None) -> BoundLinear:
        # Files are in an order of their own.
        ordered = sorted(self._plain, key=lambda part: part[0])
        weight = torch.cat([tensor for _, tensor in ordered])
        padding = self._shape.out_features - weight.shape[0]
        bound = self._kernels.prepare_linear(F.pad(weight, (0, 0, 0, padding)), bias)
        self._bound_bytes = bound.nbytes
        return bound


class MixedLinear:
    """A packed product and plain ones, each with columns of its own."""

    def __init__(
        self,
        packed: Callable[[torch.Tensor], torch.Tensor],
        plain: Sequence[tuple[slice, BoundLinear]],
        dtype: torch.dtype,
    ) -> None:
        self._packed = packed
        self._plain = tuple(plain)
        self._dtype = dtype

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, K] -> [T, N]."""
        out = self._packed(x.float())
        for columns, product in self._plain:
            out[:, columns] = product(x)
        return out.to(self._dtype)
