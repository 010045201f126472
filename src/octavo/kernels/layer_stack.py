"""LayerStack: all layers of a decoder as one call, where a set of kernels can do that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch


@dataclass(frozen=True, slots=True, eq=False)
class StackNorm:
    """x / rms(x) * weight."""

    weight: torch.Tensor  # [H]
    eps: float


@dataclass(frozen=True, slots=True, eq=False)
class StackLayer:
    """What one layer computes, the norm behind it included.

    x is normed input, `residual` the stream:

        residual += out(attention(rope(norm(qkv(x)))))
        residual += down(silu(gate) * up), [gate, up] = gate_up(mlp_norm(residual))
        x = next_norm(residual)

    Products are BoundLinear of float32 weights; a scale or window is as in AttentionParams.
    """

    qkv: object
    out: object
    gate_up: object
    down: object
    mlp_norm: StackNorm
    next_norm: StackNorm
    q_norm: StackNorm | None  # of each head
    k_norm: StackNorm | None
    cos_sin: torch.Tensor  # [max_pos, rotary_dim]: cosines, then sines
    rotary_dim: int
    is_neox: bool
    num_heads: int
    num_kv_heads: int
    head_size: int
    scale: float
    soft_cap: float | None
    window: int | None


@dataclass(frozen=True, slots=True, eq=False)
class StackCache:
    """Where a layer's keys and values are."""

    kv: torch.Tensor  # [num_blocks, 2, num_kv_heads, block_size, head_size]
    group: int  # index of the layer's KV group


@dataclass(frozen=True, slots=True, eq=False)
class StackGroup:
    """A KV group in a step."""

    slot_mapping: torch.Tensor  # [T] int64: block * block_size + offset per token, < 0: none
    rows: Any  # the step's rows, as the set's attention has them


class LayerStack(Protocol):
    """Runs the layers that it was made of."""

    def reads(self, rows: Sequence[object]) -> bool:
        """Whether the KV groups' rows of a step are such as this can read."""
        ...

    def place(self, caches: Sequence[StackCache]) -> None:
        """Say where the layers' caches are: before the first step, and when they move."""
        ...

    def __call__(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        positions: torch.Tensor,
        groups: Sequence[StackGroup],
        read: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """x[T, H] normed, residual[T, H], positions[T] int64 -> the last norm's output [T, H].

        `x` and `residual` are written over. With `read`, [S] int64 ascending, the output is
        defined for these tokens only: the last layer then computes no more of the others than
        their keys and values.
        """
        ...


class MakeLayerStack(Protocol):
    """The layers as one call, or None where the set has none for such layers."""

    def __call__(self, layers: Sequence[StackLayer]) -> LayerStack | None: ...


def no_layer_stack(layers: Sequence[StackLayer]) -> LayerStack | None:
    """None: the layers are run one operation at a time."""
    return None
