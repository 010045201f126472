"""The KernelSet of CUDA devices: Triton kernels, and cuBLAS where it measured faster."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import torch
import torch.nn.functional as F

from octavo.kernels import (
    activation,
    draw,
    embedding,
    inputs,
    norm,
    penalties,
    rotary_cache,
    sample,
    token_masks,
    top_logprobs,
)
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
    """The sampling functions of CUDA devices: the reference's, with what steps use in Triton.

    What is left to plain tensor operations (steps with plug-ins or logprobs of processed logits)
    works on some rows at a time, so that beside the logits and the rows of a plug-in no second
    copy of the logits exists.
    """
    functions = {name: getattr(reference_sampling, name) for name in vars(reference_sampling)}
    functions.update(
        PREFERS_DRAW=True,
        greedy=sample.greedy,
        greedy_checked=sample.greedy_checked,
        draw=draw.draw,
        apply_penalties=penalties.apply_penalties,
        count_outputs=penalties.count_outputs,
        top_logprobs=top_logprobs.top_logprobs,
        truncate=_truncate,
        apply_min_p=_apply_min_p,
        keep_only=_keep_only,
        keep_masked=token_masks.keep_masked,
    )
    return SimpleNamespace(**functions)


_ROWS = 8  # of logits that plain tensor operations work on at a time


def _parts(
    logits: torch.Tensor, index: torch.Tensor | None
) -> Iterator[tuple[torch.Tensor, torch.Tensor | None, slice]]:
    """(logits, index, which entries) of _ROWS rows at a time."""
    count = logits.shape[0] if index is None else index.shape[0]
    for start in range(0, count, _ROWS):
        span = slice(start, start + _ROWS)
        if index is None:
            yield logits[span], None, span
        else:
            yield logits, index[span], span


def _truncate(
    logits: torch.Tensor,
    index: torch.Tensor | None,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    num_candidates: int,
) -> None:
    """All tokens are candidates: that they were too few could only be read back from the device."""
    num_candidates = logits.shape[1]
    for part, rows, span in _parts(logits, index):
        reference_sampling.truncate(part, rows, top_k[span], top_p[span], num_candidates)


def _apply_min_p(logits: torch.Tensor, index: torch.Tensor | None, log_min_p: torch.Tensor) -> None:
    for part, rows, span in _parts(logits, index):
        reference_sampling.apply_min_p(part, rows, log_min_p[span])


def _keep_only(
    logits: torch.Tensor,
    index: torch.Tensor | None,
    allowed: torch.Tensor,
    allowed_rows: torch.Tensor,
) -> None:
    for part, rows, span in _parts(logits, index):
        reference_sampling.keep_only(part, rows, allowed, allowed_rows[span])
