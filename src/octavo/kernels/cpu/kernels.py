"""The KernelSet of the CPU: C kernels for float32, PyTorch's for everything else."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from octavo.kernels import op
from octavo.kernels.cpu.layers import NativeLayerStack
from octavo.kernels.cpu.library import native_library
from octavo.kernels.cpu.linear import NativeLinear
from octavo.kernels.cpu.packed import packed_kernels
from octavo.kernels.layer_stack import StackLayer
from octavo.kernels.reference import elementwise, gemm
from octavo.utils.logging import get_logger

logger = get_logger(__name__)


class NativeKernels:
    """The C kernels as functions of tensors."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """See RMSNormKernel."""
        if not _native(x, weight):
            return elementwise.rms_norm(x, weight, eps)
        out = torch.empty_like(x)
        width = weight.shape[0]
        self._library.octavo_rms_norm(
            x.data_ptr(),
            None,
            weight.data_ptr(),
            out.data_ptr(),
            x.numel() // width,
            width,
            eps,
        )
        return out

    def fused_add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See FusedAddRMSNormKernel; the sum is written over `residual`."""
        if not _native(x, residual, weight):
            return elementwise.fused_add_rms_norm(x, residual, weight, eps)
        out = torch.empty_like(x)
        self._library.octavo_rms_norm(
            residual.data_ptr(),
            x.data_ptr(),
            weight.data_ptr(),
            out.data_ptr(),
            *x.shape,
            eps,
        )
        return out, residual

    def silu_and_mul(self, x: torch.Tensor) -> torch.Tensor:
        """silu(x[:, :I]) * x[:, I:] of x[T, 2I]."""
        if not _native(x):
            return elementwise.silu_and_mul(x)
        rows, width = x.shape
        out = torch.empty(rows, width // 2)
        self._library.octavo_silu_and_mul(x.data_ptr(), out.data_ptr(), rows, width // 2)
        return out

    def qk_norm_rope_cache(
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
    ) -> torch.Tensor:
        """See QKNormRopeCacheKernel; the result is a view of `qkv`."""
        weights = [w for w in (q_norm_weight, k_norm_weight) if w is not None]
        if not _native(qkv, cos_sin, *weights) or kv_page.dtype != torch.float32:
            return elementwise.qk_norm_rope_cache(
                qkv,
                q_norm_weight,
                k_norm_weight,
                eps,
                cos_sin,
                positions,
                slot_mapping,
                kv_page,
                rotary_dim,
                is_neox,
            )
        num_kv_heads, block_size, head_size = kv_page.shape[2:]
        heads = qkv.unflatten(-1, (-1, head_size))
        num_heads = heads.shape[1] - 2 * num_kv_heads
        self._library.octavo_rope_cache(
            qkv.data_ptr(),
            _pointer(q_norm_weight),
            _pointer(k_norm_weight),
            eps,
            cos_sin.data_ptr(),
            positions.data_ptr(),
            slot_mapping.data_ptr(),
            kv_page.data_ptr(),
            kv_page.stride(0),
            qkv.shape[0],
            num_heads,
            num_kv_heads,
            head_size,
            block_size,
            rotary_dim,
            is_neox,
        )
        q: torch.Tensor = heads[:, :num_heads]
        return q

    def prepare_linear(
        self, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> NativeLinear | gemm.PlainLinear | gemm.PackedLinear:
        """The fastest exact product with this weight; see PrepareLinear."""
        if weight.device.type != "cpu" or weight.dtype != torch.float32:
            return gemm.prepare_linear(weight, bias)
        return NativeLinear(self._library, weight.detach(), None if bias is None else bias.detach())

    def layer_stack(self, layers: Sequence[StackLayer]) -> NativeLayerStack | None:
        """The layers as one call; see MakeLayerStack."""
        try:
            return NativeLayerStack(self._library, layers)
        except ValueError as error:
            logger.debug("CPU kernels: layers are run one operation at a time: %s", error)
            return None


def cpu_kernels() -> op.KernelSet:
    """The kernels of the CPU: native ones where they can be compiled, else PyTorch's."""
    library = native_library()
    if library is None:
        return op.reference_kernels()
    native = NativeKernels(library)
    return op.KernelSet(
        name="native",
        rms_norm=native.rms_norm,
        fused_add_rms_norm=native.fused_add_rms_norm,
        qk_norm_rope_cache=native.qk_norm_rope_cache,
        silu_and_mul=native.silu_and_mul,
        linear=gemm.linear,
        embedding=elementwise.embedding,
        prepare_linear=native.prepare_linear,
        packed=packed_kernels,
        layer_stack=native.layer_stack,
    )


def _native(*tensors: torch.Tensor) -> bool:
    return all(t.dtype == torch.float32 and t.is_contiguous() for t in tensors)


def _pointer(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
