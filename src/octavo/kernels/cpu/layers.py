"""The LayerStack of the C kernels: one call, and one waking of the threads, for all layers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_float, c_int, c_int64, c_void_p

import torch

from octavo.kernels.cpu.attention import PagedRows
from octavo.kernels.cpu.linear import NativeLinear
from octavo.kernels.layer_stack import StackCache, StackGroup, StackLayer, StackNorm


class _Linear(ctypes.Structure):
    """linear_t of products.h."""

    _fields_ = (("packed", c_void_p), ("bias", c_void_p), ("N", c_int64), ("K", c_int64))


class _Rope(ctypes.Structure):
    """rope_t of elementwise.h."""

    _fields_ = (
        ("q_norm", c_void_p),
        ("k_norm", c_void_p),
        ("cos_sin", c_void_p),
        ("pages", c_void_p),
        ("page_stride", c_int64),
        ("num_heads", c_int64),
        ("num_kv_heads", c_int64),
        ("head_size", c_int64),
        ("block_size", c_int64),
        ("rotary_dim", c_int64),
        ("eps", c_float),
        ("is_neox", c_int),
    )


class _Layer(ctypes.Structure):
    """layer_t of layers.h."""

    _fields_ = (
        ("qkv", _Linear),
        ("out", _Linear),
        ("gate_up", _Linear),
        ("down", _Linear),
        ("mlp_norm", c_void_p),
        ("next_norm", c_void_p),
        ("rope", _Rope),
        ("mlp_eps", c_float),
        ("next_eps", c_float),
        ("scale", c_float),
        ("soft_cap", c_float),
        ("window", c_int64),
        ("group", c_int64),
    )


class _Group(ctypes.Structure):
    """group_t of layers.h, rows_t of attention.h in it."""

    _fields_ = (
        ("slot_mapping", c_void_p),
        ("starts", c_void_p),
        ("seq_lens", c_void_p),
        ("tables", c_void_p),
        ("slots", c_void_p),
        ("table_stride", c_int64),
        ("num_rows", c_int64),
    )


class _Step(ctypes.Structure):
    """step_t of layers.h."""

    _fields_ = (
        ("num_tokens", c_int64),
        ("positions", c_void_p),
        ("x", c_void_p),
        ("residual", c_void_p),
        ("qkv", c_void_p),
        ("attended", c_void_p),
        ("inner", c_void_p),
        ("read", c_void_p),
        ("num_read", c_int64),
    )


class NativeLayerStack:
    """See LayerStack."""

    def __init__(self, library: ctypes.CDLL, layers: Sequence[StackLayer]) -> None:
        """Raises ValueError, with the reason, for layers that the C kernels don't have."""
        self._run = library.octavo_layers
        self._kept = layers  # what the addresses below belong to
        self._caches: Sequence[StackCache] = ()
        described = [
            _describe(layer, library.octavo_panel(), library.octavo_lanes()) for layer in layers
        ]
        self._layers = (_Layer * len(layers))(*described)
        first = described[0]
        self._widths = first.qkv.N, first.out.K, first.down.K
        if len({_shape(layer) for layer in described}) > 1:
            raise ValueError("the layers differ in heads or widths")

    def reads(self, rows: Sequence[object]) -> bool:
        """See LayerStack."""
        return all(isinstance(group, PagedRows) for group in rows)

    def place(self, caches: Sequence[StackCache]) -> None:
        """See LayerStack."""
        self._caches = caches
        for layer, cache in zip(self._layers, caches, strict=True):
            layer.rope.pages = cache.kv.data_ptr()
            layer.rope.page_stride = cache.kv.stride(0)
            layer.rope.block_size = cache.kv.shape[3]
            layer.group = cache.group

    def __call__(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        positions: torch.Tensor,
        groups: Sequence[StackGroup],
        read: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See LayerStack."""
        num_tokens = x.shape[0]
        room = [torch.empty(num_tokens, width) for width in self._widths]
        step = _Step(
            num_tokens,
            positions.data_ptr(),
            x.data_ptr(),
            residual.data_ptr(),
            *(part.data_ptr() for part in room),
            None if read is None else read.data_ptr(),
            num_tokens if read is None else read.shape[0],
        )
        described = (_Group * len(groups))(
            *(
                _Group(
                    group.slot_mapping.data_ptr(),
                    group.rows.starts.data_ptr(),
                    group.rows.seq_lens.data_ptr(),
                    group.rows.block_table.data_ptr(),
                    group.rows.slots.data_ptr(),
                    group.rows.block_table.stride(0),
                    group.rows.num_rows,
                )
                for group in groups
            )
        )
        if self._run(self._layers, len(self._layers), described, len(groups), ctypes.byref(step)):
            raise MemoryError("no memory for the attention of a step")
        return x


def _describe(layer: StackLayer, panel: int, lanes: int) -> _Layer:
    if layer.head_size % lanes:
        raise ValueError(f"head size {layer.head_size} is no multiple of {lanes}")
    down = _linear(layer.down)
    if down.K % panel:
        raise ValueError(f"inner size {down.K} is no multiple of {panel}")
    norms = [layer.q_norm, layer.k_norm]
    return _Layer(
        _linear(layer.qkv),
        _linear(layer.out),
        _linear(layer.gate_up),
        down,
        _weight(layer.mlp_norm),
        _weight(layer.next_norm),
        _Rope(
            *(None if norm is None else _weight(norm) for norm in norms),
            layer.cos_sin.data_ptr(),
            None,
            0,
            layer.num_heads,
            layer.num_kv_heads,
            layer.head_size,
            0,
            layer.rotary_dim,
            next((norm.eps for norm in norms if norm is not None), 0.0),
            layer.is_neox,
        ),
        layer.mlp_norm.eps,
        layer.next_norm.eps,
        layer.scale,
        layer.soft_cap or 0.0,
        layer.window or 0,
    )


def _shape(layer: _Layer) -> tuple[int, ...]:
    rope = layer.rope
    sizes = rope.num_heads, rope.num_kv_heads, rope.head_size
    return *sizes, layer.qkv.K, layer.qkv.N, layer.out.K, layer.down.K


def _linear(product: object) -> _Linear:
    if not isinstance(product, NativeLinear):
        raise ValueError(f"no product of packed float32 weights: {type(product).__name__}")
    return _Linear(*product.description())


def _weight(norm: StackNorm) -> int:
    if norm.weight.dtype != torch.float32 or not norm.weight.is_contiguous():
        raise ValueError("a norm's weight is not in float32")
    return norm.weight.data_ptr()
