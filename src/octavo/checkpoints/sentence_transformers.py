"""SentenceFiles: what a Sentence Transformers model says beside its config.json.

The layout is that of the package of this name: modules.json lists the modules that a text goes
through, each with a folder of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.checkpoints.gguf_model import GGUFModelFiles
from octavo.checkpoints.model_files import ModelFiles, read_json_object
from octavo.checkpoints.safetensors_headers import read_file_headers
from octavo.checkpoints.tensors import MappedFiles, RawTensor
from octavo.types.errors import CheckpointError

MODULES_FILE = "modules.json"
# Of the first module, newest name last.
_TRANSFORMER_FILES = ("sentence_distilbert_config.json", "sentence_roberta_config.json",
                      "sentence_xlnet_config.json", "sentence_bert_config.json")  # fmt: skip


@dataclass(frozen=True)
class SentenceModule:
    """One module: the last word of its class's name, its folder, its config.json or {}."""

    kind: str  # "Transformer", "Pooling", "Normalize", "Dense", ...
    path: str
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SentenceFiles:
    """The modules in order, and the settings of the first (sentence_bert_config.json)."""

    modules: tuple[SentenceModule, ...]
    transformer: Mapping[str, Any] = field(default_factory=dict)

    def has(self, kind: str) -> bool:
        """Whether a module of this kind is among them."""
        return any(module.kind == kind for module in self.modules)


def sentence_files(files: ModelFiles) -> SentenceFiles | None:
    """What a model's files say, a GGUF file's by its metadata. Raises CheckpointError."""
    if not isinstance(files, GGUFModelFiles):
        return read_sentence_files(files.path)
    mode = files.pooling_mode()
    if mode is None:
        return None
    pooling = SentenceModule("Pooling", "", {"pooling_mode": mode})
    return SentenceFiles(
        (SentenceModule("Transformer", ""), pooling, SentenceModule("Normalize", ""))
    )


def read_sentence_files(folder: Path) -> SentenceFiles | None:
    """What a model folder holds of it; None without modules.json. Raises CheckpointError."""
    path = folder / MODULES_FILE
    if not path.is_file():
        return None
    try:
        entries = json.loads(path.read_bytes())
        modules = tuple(_module(folder, entry) for entry in entries)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{path} is no list of modules: {error}") from error
    transformer: dict[str, Any] = {}
    for name in _TRANSFORMER_FILES:
        if (folder / name).is_file():
            transformer = read_json_object(folder / name)
    return SentenceFiles(modules, transformer)


def dense_tensors(folder: Path, module: str) -> dict[str, RawTensor]:
    """Tensor name -> tensor of the Dense module in `module` of a model's folder.

    Raises CheckpointError where its weights are not there as safetensors.
    """
    path = folder / module / "model.safetensors"
    if not path.is_file():
        raise CheckpointError(f"{path} is missing: the weights of the model's module {module}")
    files = MappedFiles()
    return {name: files.read(name, header) for name, header in read_file_headers(path).items()}


def _module(folder: Path, entry: Mapping[str, Any]) -> SentenceModule:
    where = str(entry["path"])
    if Path(where).is_absolute() or ".." in Path(where).parts:
        raise ValueError(f"the path {where!r} leads out of the model's folder")
    kind = str(entry["type"]).rpartition(".")[2]
    config = folder / where / "config.json"
    has_config = bool(where) and config.is_file()
    return SentenceModule(kind, where, read_json_object(config) if has_config else {})
