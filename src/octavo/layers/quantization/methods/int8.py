"""int8: weights rounded to 8 bits while they are read, scale and minimum for every 32 inputs."""

from __future__ import annotations

from octavo.kernels.op import KernelSet
from octavo.layers.quantization.interface import LinearMethod
from octavo.layers.quantization.packed import PackedLinearMethod
from octavo.layers.quantization.rounding import round_to_int8


class Int8:
    """Every linear layer and embedding rounds its weight."""

    def linear_method(self, kernels: KernelSet, prefix: str) -> LinearMethod:
        """A method for the layer at `prefix`."""
        return PackedLinearMethod(kernels, prefix, round_to_int8)

    def vocabulary_method(self, kernels: KernelSet, prefix: str) -> LinearMethod:
        """The same as for other layers."""
        return PackedLinearMethod(kernels, prefix, round_to_int8)
