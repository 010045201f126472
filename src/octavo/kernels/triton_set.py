"""The KernelSet of CUDA devices: Triton kernels, and cuBLAS where it measured faster."""

from __future__ import annotations

import functools
from types import ModuleType, SimpleNamespace

import torch
import torch.nn.functional as F

from octavo.kernels import activation, embedding, inputs, norm, rotary_cache, sample
from octavo.kernels.input_kernels import InputKernels
from octavo.kernels.launch import supports_pdl
from octavo.kernels.op import BoundLinear, KernelSet
from octavo.kernels.reference import sampling as reference_sampling
from octavo.kernels.stream_gemm import MAX_TILES, stream_gemm
from octavo.kernels.stream_gemm_table import Plan, plan_for


class StreamLinear:
    """x[T, K] @ weight[N, K].T + bias[N] by the measured table: streaming kernel or cuBLAS."""

    nbytes = 0

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        plan: Plan,
        arrivals: torch.Tensor,
        pdl: bool,
    ) -> None:
        self._weight = weight
        self._bias = bias
        self._plan = plan
        self._arrivals = arrivals
        self._pdl = pdl

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, K] -> [T, N]."""
        config = self._plan.config(x.shape[0])
        if config is None:
            return F.linear(x, self._weight, self._bias)
        return stream_gemm(x, self._weight, self._bias, config, self._arrivals, pdl=self._pdl)


class TritonLinears:
    """Makes the linear kernels of one device, which share an array of arrival counters."""

    def __init__(self, device: torch.device, pdl: bool) -> None:
        self._arrivals = torch.zeros(MAX_TILES, dtype=torch.int32, device=device)
        self._pdl = pdl

    def prepare(self, weight: torch.Tensor, bias: torch.Tensor | None) -> BoundLinear:
        """The fastest product with this weight; see PrepareLinear."""
        streams = weight.itemsize == 2 and weight.is_contiguous()
        plan = plan_for(*weight.shape) if streams else Plan(())
        return StreamLinear(weight, bias, plan, self._arrivals, self._pdl)

    def linear(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """x[T, K] @ weight[N, K].T + bias[N] -> [T, N]."""
        return self.prepare(weight, bias)(x)


def triton_kernels() -> KernelSet:
    """The kernels of the current CUDA device.

    Launches are programmatic dependent launches where the device has them: a kernel's start
    overlaps the end of the one before. Every linear shares one array of counters, so the set is
    for one stream at a time.
    """
    device = torch.device("cuda", torch.cuda.current_device())  # noqa: TID251
    pdl = supports_pdl(device)
    linears = TritonLinears(device, pdl)
    return KernelSet(
        name="triton",
        rms_norm=functools.partial(norm.rms_norm, pdl=pdl),
        fused_add_rms_norm=functools.partial(norm.fused_add_rms_norm, pdl=pdl),
        qk_norm_rope_cache=functools.partial(rotary_cache.qk_norm_rope_cache, pdl=pdl),
        silu_and_mul=functools.partial(activation.silu_and_mul, pdl=pdl),
        linear=linears.linear,
        embedding=functools.partial(embedding.embedding, pdl=pdl),
        prepare_linear=linears.prepare,
    )


def triton_input_kernels() -> InputKernels:
    """The step-input kernels of CUDA devices."""
    return InputKernels(
        staged_write=inputs.staged_write,
        token_inputs=inputs.token_inputs,
        slot_mapping=inputs.slot_mapping,
        commit=inputs.commit,
    )


def triton_sampling() -> SimpleNamespace | ModuleType:
    """The sampling functions of CUDA devices: the reference's, with the scans in Triton."""
    functions = {name: getattr(reference_sampling, name) for name in vars(reference_sampling)}
    functions.update(
        row_keys=sample.row_keys,
        greedy=sample.greedy,
        greedy_checked=sample.greedy_checked,
        sample=sample.sample,
    )
    return SimpleNamespace(**functions)
