"""Fetch a model from an object store (s3://, gs://, az://) or a web server into octavo's cache."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from octavo.checkpoints.download import Download
from octavo.checkpoints.object_store import RemoteFile, RemoteFolder
from octavo.checkpoints.weight_files import is_small, weight_names
from octavo.types.errors import CheckpointError
from octavo.utils import envs
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

_MARK = ".octavo/fetched"  # which of "small" and "weights" are here


def fetch(
    model: str,
    revision: str | None,
    download_dir: str | None,
    ignore_patterns: Sequence[str],
    weights: bool,
    load_format: str,
) -> Path:
    """Bring what is needed of the folder or .gguf file at a URL to disk, or find it there.

    What was fetched earlier is used again if its tags are still those of the remote files, and
    with a warning if nobody answers. It lies in `download_dir`, else in "models" of octavo's
    cache, in folders named like the URL. Returns the local folder or file. Raises CheckpointError.
    """
    if revision is not None:
        raise CheckpointError(f"revision={revision!r}, but {model} has no revisions; leave it out")
    root = Path(download_dir) if download_dir else envs.cache_root() / "models"
    parts = urlsplit(model)
    remote = RemoteFolder(model)
    below = [part for part in unquote(parts.path).split("/") if part not in ("", ".")]
    folder = root.joinpath(parts.scheme, parts.netloc, *(below[:-1] if remote.file else below))
    download = Download(folder)
    # A GGUF file has the configuration in it.
    everything = weights or remote.file is not None
    with download.locked():
        try:
            files = remote.files()
            download.remove_strangers(files)
            wanted = _wanted(files, remote, ignore_patterns, everything, load_format)
            download.fetch(remote, wanted, model)
        except ConnectionError as error:
            _fall_back(folder, model, everything, error)
        else:
            (folder / _MARK).write_text("weights" if everything else "small", encoding="utf-8")
    return folder / remote.file if remote.file else folder


def _wanted(
    files: Sequence[RemoteFile],
    remote: RemoteFolder,
    ignore_patterns: Sequence[str],
    weights: bool,
    load_format: str,
) -> list[RemoteFile]:
    if remote.file is not None:
        return list(files)
    kept = [
        file
        for file in files
        if ".." not in file.name.split("/")
        and not any(fnmatch.fnmatch(file.name, pattern) for pattern in ignore_patterns)
    ]
    names = [file.name for file in kept]
    chosen = set(weight_names(names, load_format)) if weights else set()
    wanted = [file for file in kept if file.name in chosen or is_small(file.name)]
    if not wanted:
        ggufs = [name for name in names if name.endswith(".gguf")]
        hint = f"; name one of its files: {ggufs[0]}" if ggufs else "; check the URL"
        raise CheckpointError(f"{remote.url} holds no config.json and no weights{hint}")
    return wanted


def _fall_back(folder: Path, model: str, weights: bool, error: ConnectionError) -> None:
    """Use what an earlier start fetched whole."""
    mark = folder / _MARK
    found = mark.read_text(encoding="utf-8") if mark.is_file() else ""
    if found == "weights" or (found == "small" and not weights):
        logger.warning("%s can't be reached (%s); using %s", model, error, folder)
        return
    raise CheckpointError(
        f"{model} can't be fetched: {error}; check the network and the URL. What came is kept, "
        "and the next start goes on from there"
    ) from error
