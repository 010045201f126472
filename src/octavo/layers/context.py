"""LayerContext: what a layer is built with, handed down and never looked up."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Self

import torch

from octavo.distributed.group import TensorParallelGroup
from octavo.kernels.op import KernelSet
from octavo.layers.quantization.interface import QuantizationConfig


@dataclass(frozen=True, eq=False)
class LayerContext:
    """Facts shared by the layers of a model, and the place of the one being built."""

    dtype: torch.dtype
    device: torch.device
    kernels: KernelSet
    group: TensorParallelGroup
    quantization: QuantizationConfig
    prefix: str = ""  # module path in the model: "model.layers.0.self_attn"

    def at(self, name: str) -> Self:
        """The same context for the submodule `name`."""
        prefix = f"{self.prefix}.{name}" if self.prefix else name
        return dataclasses.replace(self, prefix=prefix)

    def parameter(self, *size: int) -> torch.nn.Parameter:
        """An uninitialised parameter in the model's dtype."""
        data = torch.empty(size, dtype=self.dtype, device=self.device)
        return torch.nn.Parameter(data, requires_grad=False)
