"""What happens to weights after they are loaded, and how much memory they take then."""

from __future__ import annotations

from typing import cast

from torch import nn

from octavo.layers.linear import Linear
from octavo.models.interfaces import CausalLM


def process_weights(model: CausalLM) -> None:
    """Bring every linear layer's weight into the form that runs; called once after loading."""
    for module in cast(nn.Module, model).modules():
        if isinstance(module, Linear):
            module.process_after_load()


def weight_bytes(model: CausalLM) -> int:
    """Device memory of a model's weights and tables, repacked copies included."""
    module = cast(nn.Module, model)
    total = 0
    for tensor in (*module.parameters(), *module.buffers()):
        total += tensor.numel() * tensor.itemsize
    methods = (part.method for part in module.modules() if isinstance(part, Linear))
    return total + sum(method.nbytes for method in methods)
