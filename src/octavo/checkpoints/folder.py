"""FolderFiles: a model folder as transformers writes it, config.json beside safetensors files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from octavo.checkpoints.model_files import ModelFiles, read_json_object
from octavo.checkpoints.safetensors_headers import read_model_headers
from octavo.checkpoints.tensors import MappedFiles, RawTensor, TensorHeader
from octavo.types.errors import CheckpointError


class FolderFiles(ModelFiles):
    """config.json, *.safetensors, tokenizer.json, tokenizer_config.json, chat_template.jinja."""

    kind = "folder"

    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        return read_json_object(self.path / "config.json")

    def generation_config(self) -> dict[str, Any]:
        """The content of generation_config.json, or {}."""
        return self._optional("generation_config.json")

    def tensor_headers(self) -> dict[str, TensorHeader]:
        """Headers of all weight files, the index checked."""
        return read_model_headers(self.path)

    def tensors(self, packed: bool = False) -> Iterator[tuple[str, RawTensor]]:
        """Every tensor, in file order; `packed` changes nothing in this format."""
        files = MappedFiles()
        headers = self.tensor_headers()
        for name in sorted(headers, key=lambda name: (headers[name].file, headers[name].offset)):
            yield name, files.read(name, headers[name])

    def tokenizer_json(self) -> str:
        """The text of tokenizer.json."""
        path = self.path / "tokenizer.json"
        if path.is_file():
            return _text(path)
        others = [
            name
            for name in ("tokenizer.model", "tekken.json", "vocab.json", "vocab.txt")
            if (self.path / name).is_file()
        ]
        if others:
            raise CheckpointError(
                f"{self.path} has {others[0]} and no tokenizer.json; make one with transformers: "
                f'AutoTokenizer.from_pretrained("{self.path}").save_pretrained("{self.path}"), '
                "or name a model that has one with --tokenizer"
            )
        raise CheckpointError(
            f"{self.path} has no tokenizer.json; copy it from the model's repository, name "
            "another model with --tokenizer, or send token ids with --skip-tokenizer-init"
        )

    def tokenizer_config(self) -> dict[str, Any]:
        """tokenizer_config.json with what special_tokens_map.json adds to it."""
        return self._optional("special_tokens_map.json") | self._optional("tokenizer_config.json")

    def chat_templates(self) -> dict[str, str]:
        """Templates from chat_template.jinja, additional_chat_templates/, or the JSON files.

        The .jinja files win over chat_template.json, which wins over tokenizer_config.json.
        """
        templates: dict[str, str] = {}
        for source in (self.tokenizer_config(), self._optional("chat_template.json")):
            value = source.get("chat_template")
            if isinstance(value, str):
                templates["default"] = value
            elif isinstance(value, dict):
                templates |= {str(name): str(text) for name, text in value.items()}
            elif isinstance(value, list):
                named = [entry for entry in value if isinstance(entry, dict)]
                templates |= {str(e.get("name")): str(e.get("template")) for e in named}
        for path in sorted((self.path / "additional_chat_templates").glob("*.jinja")):
            templates[path.stem] = _text(path)
        if (self.path / "chat_template.jinja").is_file():
            templates["default"] = _text(self.path / "chat_template.jinja")
        return templates

    def _optional(self, name: str) -> dict[str, Any]:
        path = self.path / name
        return read_json_object(path) if path.is_file() else {}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"can't read {path}: {error}") from error
