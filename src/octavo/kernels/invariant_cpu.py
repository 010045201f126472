"""The batch-invariant KernelSet of CPUs: the C kernels, each of which sums a row by itself."""

from __future__ import annotations

import dataclasses

import torch

from octavo.kernels.cpu.kernels import cpu_kernels
from octavo.kernels.cpu.packed import NativePacked, packed_kernels
from octavo.kernels.op import Elementwise, KernelSet
from octavo.kernels.packed_weights import PackedKernels
from octavo.types.errors import ConfigError
from octavo.utils.misc import round_up

# PyTorch computes the end of a tensor, and of each thread's part, by other code than the rest,
# and gelu() is not the same in both. Rows of this many elements have no such end, and of so many
# in all no thread gets a part.
_VECTORS = 64
_ONE_THREAD = 32768


def elementwise(function: Elementwise) -> Elementwise:
    """`function` of x[T, I], computed for each element by the same code whatever T is."""

    def apply(x: torch.Tensor) -> torch.Tensor:
        num_rows, width = x.shape
        padded = round_up(width, _VECTORS)
        wide = x.new_zeros(num_rows, padded)
        wide[:, :width] = x
        parts = wide.split(max(_ONE_THREAD // padded, 1))
        return torch.cat([function(part) for part in parts])[:, :width]

    return apply


def invariant_packed() -> PackedKernels:
    """The C kernels for packed weights. Raises ConfigError where they can't be used."""
    kernels = packed_kernels()
    if not isinstance(kernels, NativePacked):
        raise ConfigError(
            "batch_invariant=True needs octavo's C kernels for packed weights, which could not be "
            "compiled (the log says why); leave out --batch-invariant or --quantization"
        )
    return kernels


def invariant_kernels() -> KernelSet:
    """The C kernels. Raises ConfigError where they can't be used.

    The libraries behind PyTorch choose the order of a sum by the number of rows.
    """
    kernels = cpu_kernels()
    if kernels.name != "native":
        raise ConfigError(
            "batch_invariant=True needs octavo's C kernels on a CPU, which are not in use; install "
            "a C compiler and leave OCTAVO_CPU_KERNELS unset, or leave out --batch-invariant"
        )

    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return kernels.prepare_linear(weight, bias)(x)

    return dataclasses.replace(
        kernels,
        name="native, batch-invariant",
        linear=linear,
        elementwise=elementwise,
        packed=invariant_packed,
    )
