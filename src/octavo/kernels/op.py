"""KernelSet: the kernels that layers call, chosen once for a kind of device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from octavo.kernels.layer_stack import MakeLayerStack, no_layer_stack
from octavo.kernels.packed_weights import PackedKernels
from octavo.kernels.reference.elementwise import (
    embedding,
    fused_add_rms_norm,
    qk_norm_rope_cache,
    rms_norm,
    silu_and_mul,
)
from octavo.kernels.reference.gemm import linear, prepare_linear
from octavo.kernels.reference.packed import TorchPacked
from octavo.types.errors import ConfigError
from octavo.utils.registry import Registry


class RMSNormKernel(Protocol):
    """x[T, H], weight[H] -> x / rms(x) * weight, [T, H]."""

    def __call__(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor: ...


class FusedAddRMSNormKernel(Protocol):
    """x[T, H], residual[T, H], weight[H] -> (normed[T, H], x + residual).

    The sum may be written over `residual`; callers go on with what is returned.
    """

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]: ...


class QKNormRopeCacheKernel(Protocol):
    """Everything between the q/k/v projection and attention, in one call.

    qkv: [T, (Hq + 2 Hkv) * D]; q_norm_weight, k_norm_weight: [D] or None for no norm per head;
    cos_sin: [max_pos, rotary_dim], cosines then sines; positions, slot_mapping: [T] int64;
    kv_page: the layer's view of the cache, [num_blocks, 2, Hkv, block_size, D].

    Normalizes and rotates q and k (the first `rotary_dim` of D; halves when `is_neox`, else
    neighbouring pairs), writes k and v of token t to slot_mapping[t] (nothing for -1) and returns
    q[T, Hq, D]. `qkv` may be overwritten.
    """

    def __call__(
        self,
        qkv: torch.Tensor,
        q_norm_weight: torch.Tensor | None,
        k_norm_weight: torch.Tensor | None,
        eps: float,
        cos_sin: torch.Tensor,
        positions: torch.Tensor,
        slot_mapping: torch.Tensor,
        kv_page: torch.Tensor,
        rotary_dim: int,
        is_neox: bool,
    ) -> torch.Tensor: ...


class LinearKernel(Protocol):
    """x[T, K], weight[N, K], bias[N] or None -> x @ weight.T + bias, [T, N]."""

    def __call__(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor: ...


class BoundLinear(Protocol):
    """x[T, K] -> [T, N] with the weight and bias inside."""

    nbytes: int  # of device memory it holds beside the tensors it was given

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...


class PrepareLinear(Protocol):
    """weight[N, K], bias[N] or None -> the fastest way to multiply by them on this device.

    Called once per layer when its weights are loaded. A result with `nbytes` > 0 holds a
    repacked copy: the caller drops the weight unless something else needs it.
    """

    def __call__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> BoundLinear: ...


Elementwise = Callable[[torch.Tensor], torch.Tensor]


def as_it_is(function: Elementwise) -> Elementwise:
    """`function` itself."""
    return function


@dataclass(frozen=True)
class KernelSet:
    """The implementations for one kind of device; every call is a pure function of tensors."""

    name: str
    rms_norm: RMSNormKernel
    fused_add_rms_norm: FusedAddRMSNormKernel
    qk_norm_rope_cache: QKNormRopeCacheKernel
    silu_and_mul: Callable[[torch.Tensor], torch.Tensor]  # x[T, 2I] -> silu(x[:, :I]) * x[:, I:]
    linear: LinearKernel
    embedding: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # ids[T], w[V, H] -> [T, H]
    prepare_linear: PrepareLinear
    # PyTorch's function of each element of x[T, I] -> one that keeps what the set promises.
    elementwise: Callable[[Elementwise], Elementwise] = as_it_is
    # Makes (and may have to compile) what packed weights need; None: the set can't have them.
    packed: Callable[[], PackedKernels] | None = None
    # Makes one call of all layers of a decoder, where the set can.
    layer_stack: MakeLayerStack = no_layer_stack


def reference_kernels() -> KernelSet:
    """Plain PyTorch: exact, and what the CPU runs."""
    return KernelSet(
        name="reference",
        rms_norm=rms_norm,
        fused_add_rms_norm=fused_add_rms_norm,
        qk_norm_rope_cache=qk_norm_rope_cache,
        silu_and_mul=silu_and_mul,
        linear=linear,
        embedding=embedding,
        prepare_linear=prepare_linear,
        packed=TorchPacked,
    )


# Device type -> the function that makes its KernelSet.
KERNEL_SETS: Registry[Callable[[], KernelSet]] = Registry(
    "kernel set",
    {
        "cpu": "octavo.kernels.cpu.kernels:cpu_kernels",
        "cuda": "octavo.kernels.triton_set:triton_kernels",
    },
)

# The same, of which the result of a row is a function of that row alone, bit for bit.
INVARIANT_KERNEL_SETS: Registry[Callable[[], KernelSet]] = Registry(
    "batch-invariant kernel set",
    {
        "cpu": "octavo.kernels.invariant_cpu:invariant_kernels",
        "cuda": "octavo.kernels.triton_invariant:invariant_kernels",
    },
)


def kernels_for(device_type: str, *, batch_invariant: bool = False) -> KernelSet:
    """The kernels of a device type ("cpu", "cuda"); ConfigError for one that has none."""
    sets = INVARIANT_KERNEL_SETS if batch_invariant else KERNEL_SETS
    if device_type not in sets:
        raise ConfigError(
            f"no kernels for device type {device_type!r}; there are: {', '.join(sets.names())}"
        )
    return sets.get(device_type)()
