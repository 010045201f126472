"""Fetch a model from the Hugging Face hub into its cache."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

import huggingface_hub
from huggingface_hub import errors

from octavo.checkpoints.weight_files import COPIES, SMALL_FILES, is_small, weight_names
from octavo.types.errors import CheckpointError


def fetch(
    model: str,
    revision: str | None,
    download_dir: str | None,
    ignore_patterns: Sequence[str],
    weights: bool,
    load_format: str = "auto",
    endpoint: str | None = None,
) -> Path:
    """Download what is needed of a hub repository, or find it in the cache.

    model: "owner/name", "owner/name:QUANTIZATION" or "owner/name/file.gguf". `revision` is a
    branch, tag or commit. Honours HF_ENDPOINT (unless `endpoint` is given), HF_HOME, HF_TOKEN and
    HF_HUB_OFFLINE. Returns the snapshot's folder, or the .gguf file in it. Raises CheckpointError.
    """
    repository, gguf_pattern = _split(model)
    try:
        if gguf_pattern is None:
            patterns = _patterns(repository, revision, weights, load_format, endpoint)
        else:
            patterns = [gguf_pattern]
        folder = Path(
            huggingface_hub.snapshot_download(
                repository,
                revision=revision,
                cache_dir=download_dir,
                allow_patterns=patterns,
                ignore_patterns=[*(f"{copy}*" for copy in COPIES), *ignore_patterns],
                endpoint=endpoint,
            )
        )
    # The client's transport errors share no base class over its versions.
    except Exception as error:
        raise CheckpointError(_explain(model, repository, revision, error)) from error
    if gguf_pattern is not None:
        return _one_gguf(folder, model, gguf_pattern)
    if not any((folder / name).is_file() for name in ("config.json", "params.json")):
        raise CheckpointError(
            f"the hub repository {repository} has no config.json; if it holds GGUF files, name "
            f"one: {repository}:Q4_K_M or {repository}/file.gguf"
        )
    return folder


def _patterns(
    repository: str,
    revision: str | None,
    weights: bool,
    load_format: str,
    endpoint: str | None,
) -> list[str]:
    """The files of a repository that are needed; if nobody answers, what the cache has will do."""
    try:
        # Unlike list_repo_files this doesn't try again for 25 s where there is no network.
        found = huggingface_hub.HfApi(endpoint).model_info(repository, revision=revision)
        names = [sibling.rfilename for sibling in found.siblings or ()]
    except errors.HfHubHTTPError:
        raise
    # Offline, or whatever the transport raises.
    except Exception:
        return list(SMALL_FILES)
    wanted = [name for name in names if is_small(name)]
    if weights:
        wanted += weight_names(names, load_format)
    # The config's name keeps the list from being empty, which would mean everything.
    return ["config.json", *map(glob.escape, wanted)]


def _split(model: str) -> tuple[str, str | None]:
    """(repository id, pattern of the GGUF files wanted or None)."""
    if model.endswith(".gguf"):
        owner, name, file = model.split("/", 2)
        return f"{owner}/{name}", file
    repository, _, quantization = model.partition(":")
    return repository, f"*{quantization}*.gguf" if quantization else None


def _one_gguf(folder: Path, model: str, pattern: str) -> Path:
    files = sorted(folder.rglob(Path(pattern).name))
    first_parts = [file for file in files if "-00001-of-" in file.name]
    candidates = first_parts or files
    if len(candidates) != 1:
        found = ", ".join(file.name for file in candidates) or "no file"
        raise CheckpointError(
            f"{model}: {found} matches {pattern}; name one file as owner/name/file.gguf"
        )
    return candidates[0]


def _explain(model: str, repository: str, revision: str | None, error: Exception) -> str:
    """What is missing and how to get it."""
    at = f" at revision {revision!r}" if revision else ""
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{repository} is gated: accept its licence at https://huggingface.co/{repository} "
            "and set HF_TOKEN to a token of that account"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repository} has no revision {revision!r}; check --revision"
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"{model!r} is neither a local path nor a repository on the hub; check the spelling, "
            "or set HF_TOKEN if it is private"
        )
    if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
        # The client's own advice follows its first line, and repeats ours.
        cause = (str(error).splitlines() or [type(error).__name__])[0]
        return (
            f"{repository}{at} is not in the local cache and the hub can't be reached; check the "
            f"network and HF_HUB_OFFLINE, or give a local folder or .gguf file ({cause})"
        )
    return f"can't fetch {repository}{at} from the hub: {error}"
