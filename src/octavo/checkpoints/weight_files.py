"""Which files of a folder hold the weights, in each form that folders come in."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.checkpoints import safetensors_headers, torch_files
from octavo.checkpoints.model_files import unique_keys
from octavo.checkpoints.sharded_files import SHARD_NAME
from octavo.checkpoints.tensors import TensorHeader
from octavo.types.errors import CheckpointError

# What trainers leave beside the weights.
_TRAINING = re.compile(r"(training_args|optimizer|scheduler|scaler|rng_state.*|trainer_state)\.\w+")
_NONE = re.compile(r"(?!)")


@dataclass(frozen=True)
class WeightForm:
    """Files of one form: by an index, else the one named `single`, else all that match.

    `kind` is the load_format that asks for it. `patterns` are tried in turn; `others` are files
    that match and belong to another form.
    """

    kind: str
    index: str | None
    single: str | None
    patterns: tuple[str, ...]
    others: re.Pattern[str]
    read: Callable[[Path], dict[str, TensorHeader]]

    def paths(self, folder: Path) -> list[Path]:
        """The files without an index, [] if there are none."""
        if self.single is not None and (folder / self.single).is_file():
            return [folder / self.single]
        for pattern in self.patterns:
            found = sorted(folder.glob(pattern))
            kept = [path for path in found if not self.others.fullmatch(path.name)]
            if kept:
                return kept
        return []

    def is_in(self, folder: Path) -> bool:
        """Whether the folder has weights of this form."""
        indexed = self.index is not None and (folder / self.index).is_file()
        return indexed or bool(self.paths(folder))

    def headers(self, folder: Path) -> dict[str, TensorHeader]:
        """Tensor name -> header over all files.

        With an index the files are the ones it names, and each must hold the tensors the index
        says it holds; other files are ignored. Raises CheckpointError for a missing file, a tensor
        absent from its file, or a tensor that two files both hold.
        """
        index = folder / self.index if self.index else None
        if index is not None and index.is_file():
            return self._indexed(folder, index)
        paths = self.paths(folder)
        if not paths:
            raise CheckpointError(
                f"{folder} has no weights ({', '.join(self.patterns)}); finish the download, or "
                "use --load-format dummy"
            )
        return merge((path, self.read(path)) for path in paths)

    def _indexed(self, folder: Path, index: Path) -> dict[str, TensorHeader]:
        weight_map = read_weight_map(index)
        names = sorted(set(weight_map.values()))
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise CheckpointError(
                f"{folder} lacks {len(missing)} of {len(names)} weight files that {index.name} "
                f"names: {_some(missing)}; finish the download"
            )
        files = {name: self.read(folder / name) for name in names}
        absent = [name for name, file in weight_map.items() if name not in files[file]]
        if absent:
            raise CheckpointError(
                f"{index.name} in {folder} names tensors that their files do not hold: "
                f"{_some([f'{name} (in {weight_map[name]})' for name in absent])}"
            )
        merge((folder / name, headers) for name, headers in files.items())
        return {name: files[file][name] for name, file in weight_map.items()}


SAFETENSORS = WeightForm(
    "safetensors",
    "model.safetensors.index.json",
    "model.safetensors",
    ("*.safetensors",),
    re.compile(rf"consolidated.*|{SHARD_NAME.pattern}"),
    safetensors_headers.read_file_headers,
)
TORCH = WeightForm(
    "pt",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
    ("*.bin", "*.pt", "*.pth"),
    re.compile(rf"consolidated.*|{_TRAINING.pattern}"),
    torch_files.read_file_headers,
)
MISTRAL = WeightForm(
    "mistral",
    "consolidated.safetensors.index.json",
    "consolidated.safetensors",
    ("consolidated*.safetensors",),
    _NONE,
    safetensors_headers.read_file_headers,
)
# The parameters of a model as each rank holds them; the plan is the first rank's.
SHARDED = WeightForm(
    "sharded_state",
    None,
    None,
    ("model-rank-0-part-*.safetensors",),
    _NONE,
    safetensors_headers.read_file_headers,
)

FORMS = (SAFETENSORS, SHARDED, MISTRAL, TORCH)  # the most wanted first
INDEXES = tuple(form.index for form in FORMS if form.index)
SINGLES = tuple(form.single for form in FORMS if form.single)
# Python files are read by people before any of them is run, which takes --trust-remote-code.
SMALL_FILES = ("*.json", "*.jinja", "tokenizer.model", "*.model.v*", "*.tiktoken", "*.py")
# Second copies of a model, in forms of others.
COPIES = ("original/", "onnx/", "openvino/", "gguf/")
_DENSE = re.compile(r"\d+_\w+/(model\.safetensors|pytorch_model\.bin)")


def is_small(name: str) -> bool:
    """Whether a file of a repository is part of a model's configuration or tokenizer."""
    if name.startswith(COPIES):
        return False
    return any(fnmatch.fnmatch(name, pattern) for pattern in SMALL_FILES)


def weight_names(names: Sequence[str], load_format: str = "auto") -> list[str]:
    """The files of a repository that hold the weights.

    Of the form that `load_format` says, else of the first that is there; with them those of the
    layers that Sentence Transformers keeps in folders of their own.
    """
    asked = [form for form in FORMS if form.kind == load_format]
    for form in asked or FORMS:
        for pattern in form.patterns:
            found = [
                name
                for name in names
                if "/" not in name
                and fnmatch.fnmatch(name, pattern.replace("-rank-0-", "-rank-*-"))
                and not form.others.fullmatch(name)
            ]
            if found:
                return found + [name for name in names if _DENSE.fullmatch(name)]
    return []


def merge(
    files: Iterable[tuple[Path, Mapping[str, TensorHeader]]],
) -> dict[str, TensorHeader]:
    """The tensors of several files; CheckpointError if two hold one of the same name."""
    merged: dict[str, TensorHeader] = {}
    for path, headers in files:
        for name, header in headers.items():
            if name in merged:
                raise CheckpointError(
                    f"{name} is in both {merged[name].file.name} and {path.name} of "
                    f"{path.parent}; remove the file that does not belong to the model"
                )
            merged[name] = header
    return merged


def read_weight_map(index: Path) -> dict[str, str]:
    """Tensor name -> file name of an index."""
    try:
        data = json.loads(index.read_bytes(), object_pairs_hook=unique_keys)
        weight_map = data["weight_map"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _malformed(index, f"no readable weight_map ({error!r})") from error
    if not isinstance(weight_map, dict) or not weight_map:
        raise _malformed(index, "weight_map is not a non-empty object")
    for name, file in weight_map.items():
        if not isinstance(file, str) or Path(file).name != file:
            raise _malformed(index, f"{name} is mapped to {file!r}, which is not a file name")
    return weight_map


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"


def _malformed(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{path} is malformed: {reason}")
