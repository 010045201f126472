"""The batch-invariant KernelSet of CUDA devices: no launch changes how a row is summed."""

from __future__ import annotations

import dataclasses
import functools

import torch

from octavo.kernels import rotary_cache
from octavo.kernels.invariant_gemm import invariant_gemm, invariant_tile
from octavo.kernels.launch import num_multiprocessors, supports_pdl
from octavo.kernels.op import KernelSet
from octavo.kernels.triton_set import triton_kernels

# The norm of a head is summed by the lanes of a warp, whose layout follows the tokens it holds.
_TOKENS_PER_PROGRAM = 4


class InvariantLinear:
    """x[T, K] @ weight[N, K].T + bias[N] in one order of K, whatever T is."""

    nbytes = 0

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, pdl: bool) -> None:
        self._weight = weight.contiguous()
        self._bias = bias
        self._pdl = pdl
        self._shape = (*self._weight.shape, weight.itemsize, num_multiprocessors(weight.device))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, K] -> [T, N]."""
        config = invariant_tile(x.shape[0], *self._shape)
        return invariant_gemm(x, self._weight, self._bias, config, pdl=self._pdl)


def invariant_kernels() -> KernelSet:
    """The kernels of the current CUDA device of which a row's result is a function of the row.

    Norms, activation and embedding are so already: one program computes a row, or each element by
    itself. The linears and the norm of heads get one way of summing for every number of rows.
    """
    kernels = triton_kernels()
    device = torch.device("cuda", torch.cuda.current_device())  # noqa: TID251
    pdl = supports_pdl(device)

    def prepare(weight: torch.Tensor, bias: torch.Tensor | None) -> InvariantLinear:
        return InvariantLinear(weight, bias, pdl)

    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return prepare(weight, bias)(x)

    return dataclasses.replace(
        kernels,
        name="triton, batch-invariant",
        linear=linear,
        prepare_linear=prepare,
        qk_norm_rope_cache=functools.partial(
            rotary_cache.qk_norm_rope_cache, pdl=pdl, tokens_per_program=_TOKENS_PER_PROGRAM
        ),
    )
