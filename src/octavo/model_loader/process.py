"""What happens to weights after they are loaded, and how much memory they take then."""

from __future__ import annotations

from typing import cast

from torch import nn

from octavo.layers.embedding import VocabParallelEmbedding
from octavo.layers.linear import Linear
from octavo.models.common.decoder import Decoder
from octavo.models.interfaces import Model


def process_weights(model: Model) -> None:
    """Bring weights and layers into the form that runs; called once after loading."""
    modules = list(cast(nn.Module, model).modules())
    for module in modules:
        if isinstance(module, Linear | VocabParallelEmbedding):
            module.process_after_load()
    for module in modules:
        if isinstance(module, Decoder):
            module.process_after_load()


def weight_bytes(model: Model) -> int:
    """Device memory of a model's weights and tables, repacked copies included."""
    module = cast(nn.Module, model)
    total = 0
    for tensor in (*module.parameters(), *module.buffers()):
        total += tensor.numel() * tensor.itemsize
    # An embedding and an output layer that is tied to it may share one.
    methods = {
        id(part.method): part.method
        for part in module.modules()
        if isinstance(part, Linear | VocabParallelEmbedding) and part.method is not None
    }
    return total + sum(method.nbytes for method in methods.values())
