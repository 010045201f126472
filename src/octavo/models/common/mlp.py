"""The MLP of a decoder layer, gated or plain; T tokens, H hidden size."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from octavo.layers.activation import activation, gated_activation
from octavo.layers.linear import (
    ColumnParallelLinear,
    MergedColumnParallelLinear,
    RowParallelLinear,
)
from octavo.models.context import ModelContext


class GatedMLP(nn.Module):
    """down(act(gate(x)) * up(x))."""

    def __init__(self, context: ModelContext) -> None:
        super().__init__()
        arch = context.arch
        inner = arch.intermediate_size
        self.gate_up_proj = MergedColumnParallelLinear(
            context.at("gate_up_proj"), arch.hidden_size, [inner, inner], bias=arch.mlp_bias
        )
        self.act_fn = gated_activation(context, arch.hidden_act)
        self.down_proj = RowParallelLinear(
            context.at("down_proj"), inner, arch.hidden_size, bias=arch.mlp_bias
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, H] -> [T, H]."""
        out: torch.Tensor = self.down_proj(self.act_fn(self.gate_up_proj(x)))
        return out


class PlainMLP(nn.Module):
    """down(act(up(x))); `act` is the config's unless it is given."""

    def __init__(
        self,
        context: ModelContext,
        act: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        super().__init__()
        arch = context.arch
        inner = arch.intermediate_size
        self.up_proj = ColumnParallelLinear(
            context.at("up_proj"), arch.hidden_size, inner, bias=arch.mlp_bias
        )
        self._act = act or activation(context, arch.hidden_act)
        self.down_proj = RowParallelLinear(
            context.at("down_proj"), inner, arch.hidden_size, bias=arch.mlp_bias
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, H] -> [T, H]."""
        out: torch.Tensor = self.down_proj(self._act(self.up_proj(x)))
        return out
