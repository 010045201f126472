"""Sharded state: a model's parameters as one rank holds them, saved and loaded as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import save_file
from torch import nn

from octavo.checkpoints.model_files import ModelFiles
from octavo.checkpoints.sharded_files import MAX_SHARD_BYTES, SHARD_NAME, shard_name
from octavo.models.common.weights import WeightMap
from octavo.models.interfaces import Model
from octavo.types.errors import CheckpointError, ConfigError


@dataclass(frozen=True, eq=False)
class ParameterTarget:
    """A whole parameter."""

    parameter: nn.Parameter

    @property
    def shape(self) -> tuple[int, ...]:
        """In the file, as in the model."""
        return tuple(self.parameter.shape)

    def load(self, tensor: torch.Tensor) -> None:
        """Copy the tensor, converting the dtype."""
        self.parameter.data.copy_(tensor)


def parameter_map(model: Model) -> WeightMap:
    """The model's parameters under their own names."""
    parameters = cast(nn.Module, model).named_parameters()
    return WeightMap({name: ParameterTarget(value) for name, value in parameters}, frozenset())


def save_sharded_state(
    model: Model, folder: Path, rank: int = 0, max_size: int = MAX_SHARD_BYTES
) -> list[Path]:
    """Write the parameters of a model whose weights are loaded and not yet processed.

    Files are model-rank-R-part-P.safetensors of up to `max_size` bytes each, or of one tensor.
    Returns their paths. Raises ConfigError for a folder that has such files already.
    """
    taken = [path.name for path in folder.iterdir() if SHARD_NAME.fullmatch(path.name)]
    if taken:
        raise ConfigError(f"{folder} holds {min(taken)} already; save to another folder")
    paths = []
    for number, part in enumerate(_parts(model, max_size)):
        paths.append(folder / shard_name(rank, number))
        save_file(part, paths[-1], metadata={"format": "pt"})
    return paths


def save_small_files(files: ModelFiles, folder: Path, dtype: str) -> None:
    """Write configuration, tokenizer and templates beside the weights, whatever they came in.

    The result needs nothing of the original. `dtype` is that of the saved parameters.
    """
    config = {name: value for name, value in files.config().items() if name != "torch_dtype"}
    contents: dict[str, Mapping[str, object]] = {
        "config.json": config | {"dtype": dtype},
        "generation_config.json": files.generation_config(),
        "tokenizer_config.json": files.tokenizer_config(),
    }
    for name, content in contents.items():
        if content:
            (folder / name).write_text(json.dumps(content, indent=2), encoding="utf-8")
    for title, template in files.chat_templates().items():
        path = folder / "chat_template.jinja"
        if title != "default":
            path = folder / "additional_chat_templates" / f"{Path(title).name}.jinja"
            path.parent.mkdir(exist_ok=True)
        path.write_text(template, encoding="utf-8")
    try:
        tokenizer = files.tokenizer_json()
    except CheckpointError:
        return  # as the model came
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")


def _parts(model: Model, max_size: int) -> Iterator[dict[str, torch.Tensor]]:
    part: dict[str, torch.Tensor] = {}
    size = 0
    for name, parameter in cast(nn.Module, model).named_parameters():
        tensor = parameter.detach().contiguous()
        if part and size + tensor.nbytes > max_size:
            yield part
            part, size = {}, 0
        part[name] = tensor
        size += tensor.nbytes
    yield part
