"""ModelFiles: one model's files behind one interface, whatever their format."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from octavo.checkpoints.tensors import RawTensor, TensorHeader
from octavo.types.errors import CheckpointError


class ModelFiles(ABC):
    """A model on local disk. Nothing is read before it is asked for; nothing uses the network.

    `path` is the folder or the .gguf file (find_model() takes it back), `name` is what the user
    asked for, `kind` is the form of the weights, as a load_format. `runs_code`: whether Python code
    that comes with the model may be run.
    """

    kind: str
    runs_code = False

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The model's configuration in the form of a Hugging Face config.json."""

    @abstractmethod
    def generation_config(self) -> dict[str, Any]:
        """The model's own sampling defaults and end tokens (generation_config.json), or {}."""

    @abstractmethod
    def tensor_headers(self) -> dict[str, TensorHeader]:
        """Tensor name, in the Hugging Face layout, -> header; shapes are those of tensors()."""

    @abstractmethod
    def tensors(self, packed: bool = False) -> Iterator[tuple[str, RawTensor]]:
        """Every tensor, one at a time, mapped from its file.

        Quantized GGUF tensors are dequantized to "F32", unless `packed`: then their blocks come
        as they are stored, rows in the Hugging Face order.
        """

    @abstractmethod
    def tokenizer_json(self) -> str:
        """The text of a tokenizer.json; raises CheckpointError where there is none."""

    @abstractmethod
    def tokenizer_config(self) -> dict[str, Any]:
        """The content of tokenizer_config.json (special tokens, add_bos_token, ...), or {}."""

    @abstractmethod
    def chat_templates(self) -> dict[str, str]:
        """Named Jinja chat templates; the usual one is "default"."""

    def chat_template(self) -> str | None:
        """The usual chat template, or None."""
        return self.chat_templates().get("default")


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON file that must hold an object; CheckpointError names the file otherwise."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"can't read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a JSON {type(value).__name__}, not an object")
    return value


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys are all different, as json's object_pairs_hook."""
    result = dict(pairs)
    if len(result) != len(pairs):
        repeated = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
        raise ValueError(f"{repeated[0]!r} appears twice")
    return result
