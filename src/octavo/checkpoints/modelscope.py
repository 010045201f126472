"""Fetch a model from ModelScope into its cache."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from modelscope_hub import HubApi
from modelscope_hub.errors import HubError, NetworkError, NotExistError
from requests import RequestException

from octavo.checkpoints.weight_files import is_small, weight_names
from octavo.types.errors import CheckpointError


def fetch(
    model: str,
    revision: str | None,
    download_dir: str | None,
    ignore_patterns: Sequence[str],
    weights: bool,
    load_format: str,
    endpoint: str | None = None,
) -> Path:
    """Download what is needed of a repository at ModelScope, or find it in the cache.

    model: "owner/name", or "owner/name/file.gguf". Honours MODELSCOPE_ENDPOINT (unless `endpoint`
    is given), MODELSCOPE_API_TOKEN and MODELSCOPE_CACHE. Returns the folder, or the .gguf file in
    it. Raises CheckpointError.
    """
    owner, _, rest = model.partition("/")
    name, _, file = rest.partition("/")
    repository = f"{owner}/{name}"
    api = HubApi(endpoint=endpoint)
    try:
        folder = _snapshot(
            api, repository, revision, download_dir, ignore_patterns, weights, load_format, file
        )
    except NotExistError as error:
        raise CheckpointError(
            f"{repository} is neither a local path nor a repository at ModelScope; check the "
            "spelling, or unset OCTAVO_USE_MODELSCOPE for the Hugging Face hub"
        ) from error
    except (HubError, RequestException, OSError) as error:
        raise CheckpointError(f"can't fetch {repository} from ModelScope: {error}") from error
    path = folder / file if file else folder
    if not path.exists():
        raise CheckpointError(f"{repository} has no file {file}")
    return path


def _snapshot(
    api: HubApi,
    repository: str,
    revision: str | None,
    download_dir: str | None,
    ignore_patterns: Sequence[str],
    weights: bool,
    load_format: str,
    file: str,
) -> Path:
    try:
        names = [
            entry.path
            for entry in api.list_repo_files(repository, "model", revision=revision)
            if entry.type != "tree"
        ]
    except (RequestException, NetworkError):
        # Nobody answers: what the cache has will do.
        return Path(
            api.download_repo(
                repository,
                "model",
                revision=revision,
                cache_dir=download_dir,
                local_files_only=True,
            )
        )
    if file:
        wanted = [file]
    else:
        wanted = [name for name in names if is_small(name)]
        wanted += weight_names(names, load_format) if weights else []
    if not wanted:
        raise CheckpointError(f"{repository} at ModelScope holds no configuration and no weights")
    return Path(
        api.download_repo(
            repository,
            "model",
            revision=revision,
            cache_dir=download_dir,
            allow_patterns=[glob.escape(name) for name in wanted],
            ignore_patterns=list(ignore_patterns),
        )
    )
