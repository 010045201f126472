"""ModelLoader: fill a new model with a checkpoint's weights, or with random ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

import torch
from torch import nn

from octavo.checkpoints.model_files import ModelFiles
from octavo.checkpoints.tensors import TensorHeader
from octavo.model_loader.process import process_weights
from octavo.model_loader.weights import check_fit, torch_tensors
from octavo.models.common.weights import WeightMap
from octavo.models.context import ModelContext
from octavo.models.interfaces import CausalLM
from octavo.models.registry import build_model
from octavo.types.errors import ConfigError
from octavo.utils.registry import Registry


class Reader(Protocol):
    """A fast way to fill parameters from tensors that are stored plainly."""

    def read(self, weights: WeightMap, headers: Mapping[str, TensorHeader]) -> set[str]:
        """Read what it can; returns the names that are left to others."""
        ...


class MappedReader:
    """Leaves everything to the copy out of mapped files, one tensor at a time."""

    def read(self, weights: WeightMap, headers: Mapping[str, TensorHeader]) -> set[str]:
        """See Reader."""
        return set(headers)


class ModelLoader(Protocol):
    """One way to fill a model's parameters."""

    def load(self, model: CausalLM, files: ModelFiles, reader: Reader | None = None) -> None:
        """Give every parameter of `model` its value; `files` are the model's."""
        ...


class DefaultModelLoader:
    """Weights from safetensors or GGUF files, straight into their fused parameters."""

    kinds: tuple[str, ...] = ("folder", "gguf")

    def load(self, model: CausalLM, files: ModelFiles, reader: Reader | None = None) -> None:
        """Check names and shapes against the files' headers, then read."""
        if files.kind not in self.kinds:
            raise ConfigError(
                f"{files.path} is a {files.kind} model, which the load_format given does not "
                "read; use load_format=auto"
            )
        weights = model.weight_map()
        headers = files.tensor_headers()
        check_fit(weights, {name: h.shape for name, h in headers.items()})
        left = set(headers)
        # Elsewhere what is stored may be in another order than what is loaded.
        if files.kind == "folder" and reader is not None:
            left = reader.read(weights, headers)
        if left:
            tensors = files.tensors()
            model.load_weights(torch_tensors((name, raw) for name, raw in tensors if name in left))


class SafetensorsLoader(DefaultModelLoader):
    """Refuses anything but a folder of safetensors files."""

    kinds = ("folder",)


class GGUFLoader(DefaultModelLoader):
    """Refuses anything but GGUF files."""

    kinds = ("gguf",)


class DummyModelLoader:
    """Random weights made on the device; only the model's config is read.

    Uniform in (-0.001, 0.001), so small that activations stay finite in every dtype, and the same
    at every start.
    """

    def load(self, model: CausalLM, files: ModelFiles, reader: Reader | None = None) -> None:
        """Fill the parameters; nothing is read."""
        generators: dict[torch.device, torch.Generator] = {}
        for parameter in cast(nn.Module, model).parameters():
            device = parameter.device
            if device not in generators:
                generators[device] = torch.Generator(device).manual_seed(0)
            if parameter.is_floating_point():
                parameter.data.uniform_(-1e-3, 1e-3, generator=generators[device])
            else:
                parameter.data.zero_()


LOADERS: Registry[type[ModelLoader]] = Registry(
    "load_format",
    {
        "auto": DefaultModelLoader,
        "safetensors": SafetensorsLoader,
        "gguf": GGUFLoader,
        "dummy": DummyModelLoader,
    },
)


def load_model(context: ModelContext, files: ModelFiles, load_format: str = "auto") -> CausalLM:
    """Build the model of `context.arch`, load it and make it ready to run."""
    model = build_model(context)
    load_into(model, files, load_format, MappedReader())
    return model


def load_into(model: CausalLM, files: ModelFiles, load_format: str, reader: Reader) -> None:
    """Load a new model's weights and make it ready to run.

    Memory: the parameters, and beside them the reader's buffers or one checkpoint tensor at a
    time; then one layer's weight at a time while it is repacked.
    """
    if load_format not in LOADERS:
        raise ConfigError(
            f"load_format={load_format!r} is not known; there are: {', '.join(LOADERS.names())}"
        )
    LOADERS.get(load_format)().load(model, files, reader)
    process_weights(model)
