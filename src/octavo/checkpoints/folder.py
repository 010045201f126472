"""FolderFiles: a model folder, config.json or params.json beside files of weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from octavo.checkpoints import sentencepiece_model, tekken
from octavo.checkpoints.mistral_config import hf_config
from octavo.checkpoints.model_files import ModelFiles, read_json_object
from octavo.checkpoints.tensors import MappedFiles, RawTensor, TensorHeader
from octavo.checkpoints.weight_files import SAFETENSORS, WeightForm
from octavo.types.errors import CheckpointError
from octavo.utils.registry import Registry

MISTRAL_CONFIG = "params.json"
MISTRAL_TOKENIZER = "tekken.json"
# What runs a tokenizer's own code, where that is allowed: imported when it is needed.
_CODE_READERS: Registry[Callable[[Path], str]] = Registry(
    "reader of tokenizers in Python",
    {"transformers": "octavo.models.transformers_tokenizer:tokenizer_json"},
)


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
        """The text of tokenizer.json, or of one made of other files or, if allowed, by its code."""
        path = self.path / "tokenizer.json"
        if path.is_file():
            return _text(path)
        if (self.path / MISTRAL_TOKENIZER).is_file():
            return tekken.tokenizer_json(self._tekken())
        reference = self._tokenizer_code()
        if reference is not None:
            return self._run_tokenizer(reference)
        pieces = sentencepiece_model.find(self.path)
        if pieces is not None:
            return sentencepiece_model.tokenizer_json(sentencepiece_model.read(pieces))
        others = [name for name in ("vocab.json", "vocab.txt") if (self.path / name).is_file()]
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
        if not found and not (self.path / "tokenizer.json").is_file():
            pieces = sentencepiece_model.find(self.path)
            if pieces is not None:
                return sentencepiece_model.tokenizer_config(sentencepiece_model.read(pieces))
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

    def _tokenizer_code(self) -> str | None:
        """The "module.Class" that auto_map names for the tokenizer, or None."""
        for config in (self.tokenizer_config(), self._optional("config.json")):
            named = config.get("auto_map")
            found = named.get("AutoTokenizer") if isinstance(named, dict) else named
            # A pair: the class in Python and the one over the `tokenizers` package.
            found = found if isinstance(found, list) else [found]
            for reference in reversed(found):
                if isinstance(reference, str):
                    return reference
        return None

    def _run_tokenizer(self, reference: str) -> str:
        if not self.runs_code:
            raise CheckpointError(
                f"{self.path} has no tokenizer.json, and its tokenizer is code that comes with it "
                f"({reference}), which is not run unless that is asked for: read it, then add "
                "--trust-remote-code"
            )
        try:
            reader = _CODE_READERS.get("transformers")
        except ImportError as error:
            raise CheckpointError(
                f"the tokenizer of {self.path} ({reference}) needs the package transformers: "
                f"pip install transformers ({error})"
            ) from error
        return reader(self.path)

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
