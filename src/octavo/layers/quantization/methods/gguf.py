"""gguf: weights of a GGUF file in the blocks that they are stored in."""

from __future__ import annotations

from octavo.kernels.op import KernelSet
from octavo.layers.quantization.interface import LinearMethod
from octavo.layers.quantization.packed import PackedLinearMethod


class GGUF:
    """Every linear layer and embedding keeps its codes."""

    def linear_method(self, kernels: KernelSet, prefix: str) -> LinearMethod:
        """A method for the layer at `prefix`."""
        return PackedLinearMethod(kernels, prefix, None)

    def vocabulary_method(self, kernels: KernelSet, prefix: str) -> LinearMethod:
        """The same as for other layers."""
        return PackedLinearMethod(kernels, prefix, None)
