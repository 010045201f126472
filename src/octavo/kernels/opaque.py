"""Calls that a compiled graph leaves alone: Python callables as torch.library operators.

A compiled graph takes tensors and numbers, and what it calls has to be an operator known to all of
torch. So an operator stands for a kind of call, and a tensor of one number says which of the
callables of the model that runs is meant. As a tensor it is an input of the graph and not a part
of it: the graphs of layers that are alike are equal, and compiled once.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final

import torch

from octavo.kernels.op import BoundLinear, KernelSet

_SCHEMAS: Final = (
    "rows(Tensor x, int width, Tensor which) -> Tensor",
    "lookup(Tensor ids, Tensor weight, Tensor which) -> Tensor",
    "rms_norm(Tensor x, Tensor weight, float eps, Tensor which) -> Tensor",
    "add_rms_norm(Tensor x, Tensor(a!) residual, Tensor weight, float eps, Tensor which) -> Tensor",
    "attention(Tensor(a!) qkv, Tensor positions, int width, Tensor which) -> Tensor",
)
_LIBRARY: Final = torch.library.Library("octavo", "DEF")


class CallTable:
    """The callables of one model, by the numbers that its graphs know them by."""

    def __init__(self) -> None:
        self._calls: list[Callable[..., Any]] = []

    def add(self, call: Callable[..., Any]) -> torch.Tensor:
        """Take in a callable; returns the tensor that stands for it."""
        self._calls.append(call)
        return torch.tensor(len(self._calls) - 1)

    def __getitem__(self, which: torch.Tensor) -> Callable[..., Any]:
        return self._calls[int(which)]

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Within it, this thread's operators call what is in this table."""
        token = _TABLE.set(self)
        try:
            yield
        finally:
            _TABLE.reset(token)


_TABLE: ContextVar[CallTable] = ContextVar("octavo_calls")


def _rows(x: torch.Tensor, width: int, which: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = _TABLE.get()[which](x)
    return out


def _lookup(ids: torch.Tensor, weight: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = _TABLE.get()[which](ids, weight)
    return out


def _rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float, which: torch.Tensor
) -> torch.Tensor:
    out: torch.Tensor = _TABLE.get()[which](x, weight, eps)
    return out


def _add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, which: torch.Tensor
) -> torch.Tensor:
    out, total = _TABLE.get()[which](x, residual, weight, eps)
    if total is not residual:
        residual.copy_(total)
    return out  # type: ignore[no-any-return]


def _attention(
    qkv: torch.Tensor, positions: torch.Tensor, width: int, which: torch.Tensor
) -> torch.Tensor:
    out: torch.Tensor = _TABLE.get()[which](qkv, positions)
    return out.contiguous()


def _like_x(x: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _of_width(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    return x.new_empty(x.shape[0], rest[-2])


def _looked_up(ids: torch.Tensor, weight: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
    return weight.new_empty(ids.shape[0], weight.shape[1])


for _schema in _SCHEMAS:
    _LIBRARY.define(_schema)
for _name, _call, _shape in (
    ("rows", _rows, _of_width),
    ("lookup", _lookup, _looked_up),
    ("rms_norm", _rms_norm, _like_x),
    ("add_rms_norm", _add_rms_norm, _like_x),
    ("attention", _attention, _of_width),
):
    _LIBRARY.impl(_name, _call, "CompositeExplicitAutograd")
    torch.library.register_fake(f"octavo::{_name}", _shape, lib=_LIBRARY)


class OpaqueLinear:
    """A bound linear behind an operator."""

    def __init__(self, bound: BoundLinear, num_out: int, table: CallTable) -> None:
        self.nbytes = bound.nbytes
        self._num_out = num_out
        self._which = table.add(bound)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, K] -> [T, N]."""
        out: torch.Tensor = torch.ops.octavo.rows(x, self._num_out, self._which)
        return out


def opaque_kernels(kernels: KernelSet, table: CallTable) -> KernelSet:
    """`kernels` with what layers call behind operators; attention's part is inside of its own."""

    def prepare_linear(weight: torch.Tensor, bias: torch.Tensor | None) -> OpaqueLinear:
        return OpaqueLinear(kernels.prepare_linear(weight, bias), weight.shape[0], table)

    norm, add_norm = table.add(kernels.rms_norm), table.add(kernels.fused_add_rms_norm)
    gate, lookup = table.add(kernels.silu_and_mul), table.add(kernels.embedding)
    ops = torch.ops.octavo

    def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        out: torch.Tensor = ops.rms_norm(x, weight, eps, norm)
        return out

    def fused_add_rms_norm(
        x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return ops.add_rms_norm(x, residual, weight, eps, add_norm), residual

    def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = ops.rows(x, x.shape[1] // 2, gate)
        return out

    def embedding(ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = ops.lookup(ids, weight, lookup)
        return out

    return dataclasses.replace(
        kernels,
        prepare_linear=prepare_linear,
        rms_norm=rms_norm,
        fused_add_rms_norm=fused_add_rms_norm,
        silu_and_mul=silu_and_mul,
        embedding=embedding,
    )
