"""Weights of the dense layers that Sentence Transformers keeps in folders of their own."""

from __future__ import annotations

from pathlib import Path

from octavo.checkpoints.sentence_transformers import dense_tensors
from octavo.model_loader.weights import as_torch
from octavo.models.pooled import PooledModel
from octavo.types.errors import CheckpointError


def load_dense_layers(model: PooledModel, folder: Path) -> None:
    """Fill them from the model's folder. Raises CheckpointError for what does not fit."""
    for layer in model.dense:
        tensors = dense_tensors(folder, layer.path)
        for name, parameter in layer.named_parameters():
            if name not in tensors or tensors[name].array.shape != tuple(parameter.shape):
                found = list(tensors[name].array.shape) if name in tensors else "nothing"
                raise CheckpointError(
                    f"{folder / layer.path} has {found} for {name}; its config.json says "
                    f"{list(parameter.shape)}"
                )
            parameter.data.copy_(as_torch(tensors[name]))
