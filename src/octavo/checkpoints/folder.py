"""FolderFiles: a model folder, config.json or params.json beside files of weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from octavo.checkpoints import tekken
from octavo.checkpoints.mistral_config import hf_config
from octavo.checkpoints.model_files import ModelFiles, read_json_object
from octavo.checkpoints.tensors import MappedFiles, RawTensor, TensorHeader
from octavo.checkpoints.weight_files import SAFETENSORS, WeightForm
from octavo.types.errors import CheckpointError

MISTRAL_CONFIG = "params.json"
MISTRAL_TOKENIZER = "tekken.json"


class FolderFiles(ModelFiles):
    """Configuration, weights of one form, tokenizer.json, tokenizer_config.json, templates.

    `config_format`: "hf" reads config.json, "mistral" reads params.json, "auto" the former where
    it is there. Without a tokenizer.json, tekken.json is the tokenizer.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        form: WeightForm = SAFETENSORS,
        config_format: str = "auto",
    ) -> None:
        super().__init__(path, name)
        self.kind = form.kind
        self._form = form
        self._config_format = config_format

    def config(self) -> dict[str, Any]:
        """The content of config.json, or the like made of params.json."""
        own = self.path / "config.json"
        if self._config_format == "auto":
            mistral = not own.is_file() and (self.path / MISTRAL_CONFIG).is_file()
        else:
            mistral = self._config_format == "mistral"
        if not mistral:
            return read_json_object(own)
        path = self.path / MISTRAL_CONFIG
        return hf_config(path, read_json_object(path))

    def generation_config(self) -> dict[str, Any]:
        """The content of generation_config.json, or {}."""
        return self._optional("generation_config.json")

    def tensor_headers(self) -> dict[str, TensorHeader]:
        """Headers of all weight files, the index checked."""
        return self._form.headers(self.path)

    def tensors(self, packed: bool = False) -> Iterator[tuple[str, RawTensor]]:
        """Every tensor, in file order; `packed` changes nothing in these formats."""
        files = MappedFiles()
        headers = self.tensor_headers()
        for name in sorted(headers, key=lambda name: (headers[name].file, headers[name].offset)):
            yield name, files.read(name, headers[name])

    def tokenizer_json(self) -> str:
        """The text of tokenizer.json, or of one made of tekken.json."""
        path = self.path / "tokenizer.json"
        if path.is_file():
            return _text(path)
        if (self.path / MISTRAL_TOKENIZER).is_file():
            return tekken.tokenizer_json(self._tekken())
        others = [
            name
            for name in ("tokenizer.model", "vocab.json", "vocab.txt")
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
        found = self._optional("special_tokens_map.json") | self._optional("tokenizer_config.json")
        if not found and self._uses_tekken():
            return tekken.tokenizer_config(self._tekken())
        return found

    def chat_templates(self) -> dict[str, str]:
        """Templates from chat_template.jinja, additional_chat_templates/, or the JSON files.

        The .jinja files win over chat_template.json, which wins over tokenizer_config.json.
        Without any, a tekken.json's version says how conversations are written.
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

    def _uses_tekken(self) -> bool:
        own = (self.path / "tokenizer.json").is_file()
        return not own and (self.path / MISTRAL_TOKENIZER).is_file()

    def _tekken(self) -> tekken.Tekken:
        path = self.path / MISTRAL_TOKENIZER
        return tekken.read(path, read_json_object(path))

    def _optional(self, name: str) -> dict[str, Any]:
        path = self.path / name
        return read_json_object(path) if path.is_file() else {}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"can't read {path}: {error}") from error
