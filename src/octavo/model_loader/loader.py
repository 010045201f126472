"""ModelLoader: fill a new model with a checkpoint's weights, or with random ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol, cast

import torch
from torch import nn

from octavo.checkpoints.model_files import ModelFiles
from octavo.checkpoints.sharded_files import check_ranks
from octavo.checkpoints.tensors import RawTensor, TensorHeader
from octavo.model_loader.packed import fill_with_noise, log_packing, tensors_without_codes
from octavo.model_loader.process import process_weights
from octavo.model_loader.sharded_state import parameter_map
from octavo.model_loader.weights import check_fit, torch_tensors
from octavo.models.common.weights import WeightMap
from octavo.models.context import ModelContext
from octavo.models.interfaces import CausalLM, Model
from octavo.models.registry import build_model
from octavo.types.errors import ConfigError
from octavo.utils.progress import byte_progress, no_progress
from octavo.utils.registry import Registry


class Reader(Protocol):
    """A fast way to fill parameters from tensors that are stored plainly."""

    def read(
        self,
        weights: WeightMap,
        headers: Mapping[str, TensorHeader],
        advance: Callable[[int], None] = ...,
    ) -> set[str]:
        """Read what it can; returns the names that are left to others.

        `advance` is told the bytes of each piece, by any thread.
        """
        ...


class MappedReader:
    """Leaves everything to the copy out of mapped files, one tensor at a time."""

    def read(
        self,
        weights: WeightMap,
        headers: Mapping[str, TensorHeader],
        advance: Callable[[int], None] = no_progress,
    ) -> set[str]:
        """See Reader."""
        return set(headers)


class ModelLoader(Protocol):
    """One way to fill a model's parameters."""

    def load(self, model: Model, files: ModelFiles, reader: Reader | None = None) -> None:
        """Give every parameter of `model` its value; `files` are the model's."""
        ...


class DefaultModelLoader:
    """Weights of a checkpoint, straight into their fused parameters."""

    def load(self, model: Model, files: ModelFiles, reader: Reader | None = None) -> None:
        """Check names and shapes against the files' headers, then read."""
        _fill(model.weight_map(), model.load_weights, files, reader)


class ShardedStateLoader:
    """Parameters as another engine of as many ranks held them, under the model's own names."""

    def load(self, model: Model, files: ModelFiles, reader: Reader | None = None) -> None:
        """Check names and shapes against the files' headers, then read."""
        check_ranks(files.path, num_ranks=1)
        weights = parameter_map(model)
        _fill(weights, weights.load, files, reader)


class DummyModelLoader:
    """Random weights made on the device; only the model's config is read.

    Uniform in (-0.001, 0.001), so small that activations stay finite in every dtype, and the same
    at every start.
    """

    def load(self, model: Model, files: ModelFiles, reader: Reader | None = None) -> None:
        """Fill the parameters; nothing is read."""
        generators: dict[torch.device, torch.Generator] = {}
        packed = fill_with_noise(model, _NOISE)
        for parameter in cast(nn.Module, model).parameters():
            if id(parameter) in packed:
                continue
            device = parameter.device
            if device not in generators:
                generators[device] = torch.Generator(device).manual_seed(0)
            if parameter.is_floating_point():
                parameter.data.uniform_(-_NOISE, _NOISE, generator=generators[device])
            else:
                parameter.data.zero_()


def _fill(
    weights: WeightMap,
    load: Callable[[Iterable[tuple[str, torch.Tensor]]], set[str]],
    files: ModelFiles,
    reader: Reader | None,
) -> None:
    headers = files.tensor_headers()
    check_fit(weights, {name: header.shape for name, header in headers.items()})
    with byte_progress("weights", sum(header.nbytes for header in headers.values())) as advance:
        left = set(headers) if reader is None else reader.read(weights, headers, advance)
        if left:
            tensors = tensors_without_codes(files, weights)
            load(torch_tensors(_counted(tensors, left, headers, advance)))


def _counted(
    tensors: Iterable[tuple[str, RawTensor]],
    wanted: Collection[str],
    headers: Mapping[str, TensorHeader],
    advance: Callable[[int], None],
) -> Iterator[tuple[str, RawTensor]]:
    """The tensors that are wanted; each counts when the next one is asked for."""
    for name, raw in tensors:
        if name in wanted:
            yield name, raw
            advance(headers[name].nbytes)


_NOISE = 1e-3  # of dummy weights

LOADERS: Registry[type[ModelLoader]] = Registry(
    "load_format",
    {
        "auto": DefaultModelLoader,
        "hf": DefaultModelLoader,
        "safetensors": DefaultModelLoader,
        "pt": DefaultModelLoader,
        "mistral": DefaultModelLoader,
        "gguf": DefaultModelLoader,
        "sharded_state": ShardedStateLoader,
        "dummy": DummyModelLoader,
    },
)

_ANY_FILES = ("auto", "hf")
# The load formats that say which files there must be.
FILE_FORMATS = ("safetensors", "pt", "mistral", "gguf", "sharded_state")


def load_model(context: ModelContext, files: ModelFiles, load_format: str = "auto") -> CausalLM:
    """Build the model of `context.arch`, load it and make it ready to run."""
    model = build_model(context)
    load_into(model, files, load_format, MappedReader())
    return model


def fill_model(model: Model, files: ModelFiles, load_format: str, reader: Reader) -> None:
    """Load a new model's weights, as they are in the checkpoint.

    Memory: the parameters, and beside them the reader's buffers or one checkpoint tensor at a
    time.
    """
    if load_format not in LOADERS:
        raise ConfigError(
            f"load_format={load_format!r} is not known; there are: {', '.join(LOADERS.names())}"
        )
    if load_format in FILE_FORMATS and load_format != files.kind:
        raise ConfigError(
            f"load_format={load_format!r}, but {files.path} was opened as {files.kind}; use "
            "load_format=auto"
        )
    # Sharded state has other names than any checkpoint: only its own loader can read it.
    wanted = files.kind if load_format in _ANY_FILES else load_format
    LOADERS.get(wanted)().load(model, files, reader)


def load_into(model: Model, files: ModelFiles, load_format: str, reader: Reader) -> None:
    """Load a new model's weights and make it ready to run.

    Memory: that of fill_model, then one layer's weight at a time while it is repacked.
    """
    fill_model(model, files, load_format, reader)
    log_packing(model)
    process_weights(model)
