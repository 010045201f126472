"""Activations of the MLP, gated or not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import nn

from octavo.layers.context import LayerContext
from octavo.types.errors import ConfigError

_GELU_TANH = functools.partial(F.gelu, approximate="tanh")

# The names that configs use.
ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "swish": F.silu,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_pytorch_tanh": _GELU_TANH,
    "gelu_new": _GELU_TANH,
    "gelu_fast": _GELU_TANH,
}


def activation(context: LayerContext, name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """The function of a name in a config; ConfigError lists what there is."""
    if name not in ACTIVATIONS:
        raise ConfigError(
            f"hidden_act={name!r} in the model's config is not supported; there are: "
            f"{', '.join(ACTIVATIONS)}"
        )
    return context.kernels.elementwise(ACTIVATIONS[name])


def gated_activation(context: LayerContext, name: str) -> nn.Module:
    """act(gate) * up of the two halves [gate, up]; one kernel for SiLU."""
    return (
        SiluAndMul(context) if name in ("silu", "swish") else ActAndMul(activation(context, name))
    )


class SiluAndMul(nn.Module):
    """silu(gate) * up of the two halves [gate, up] of the last dimension."""

    def __init__(self, context: LayerContext) -> None:
        super().__init__()
        self._kernel = context.kernels.silu_and_mul

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, 2 I] -> [T, I]."""
        return self._kernel(x)


class ActAndMul(nn.Module):
    """act(gate) * up of the two halves [gate, up] of the last dimension."""

    def __init__(self, act: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._act = act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[T, 2 I] -> [T, I]."""
        gate, up = x.chunk(2, dim=-1)
        return self._act(gate) * up
