"""KernelCache: compiled kernels on disk, checked by content, which may be moved and shared."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from triton import knobs
from triton.runtime import build
from triton.runtime.cache import CacheManager

_GROUP = "__group__"
_DIGEST_BYTES = 16


class KernelCache(CacheManager):  # type: ignore[misc]
    """One entry (a kernel, or the host code that launches it) of the caches in `folders`.

    Triton makes one for each entry's key, which names the source, the options, the compiler and
    the device, so an entry of another GPU or Triton is never found. Files are written whole or not
    at all, by any number of processes. Beside each lies a digest of its content: a file that does
    not match it is taken for missing and compiled again. Nothing refers to absolute paths, so a
    folder may be copied, shipped and mounted read-only.
    """

    folders: ClassVar[Sequence[Path]] = ()  # the first is written to; all are searched

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self._places = [folder / key for folder in self.folders]

    def get_file(self, filename: str) -> str | None:
        """Path of a file of the entry whose content is what was written, or None."""
        for place in self._places:
            if _digest_matches(place / filename):
                return str(place / filename)
        return None

    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        """Write a file of the entry; returns its path."""
        content = data if isinstance(data, bytes) else str(data).encode()
        place = self._places[0]
        place.mkdir(parents=True, exist_ok=True)
        _write_whole(place / filename, content)
        _write_whole(_digest_file(place / filename), _digest(content).encode())
        return str(place / filename)

    def get_group(self, filename: str) -> dict[str, str] | None:
        """Name -> path of the files that belong together, or None if one is missing or broken."""
        for place in self._places:
            found = _read_group(place, filename)
            if found is not None:
                return found
        return None

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """Note which files belong together."""
        return self.put(json.dumps(sorted(group)), _GROUP + filename)


def use_kernel_cache(folders: Sequence[Path]) -> None:
    """Have Triton keep what it compiles in the first of `folders` and look for it in all.

    Where the first can't be written to, what is compiled lasts as long as this process.
    """
    writable, *others = folders
    try:
        writable.mkdir(parents=True, exist_ok=True)
        _write_whole(writable / ".writable", b"")
    except OSError:
        others = [writable, *others]
        writable = Path(tempfile.mkdtemp(prefix="octavo-kernels-"))
    places = (writable, *others)
    knobs.cache.manager_class = type("KernelCache", (KernelCache,), {"folders": places})
    # Intermediate forms are for reading; what runs is the binary.
    knobs.compilation.store_binary_only = True
    # Triton names host code by what the program `file` says of Python, where there is a `file`.
    build.platform_key = _platform_key


def _platform_key() -> str:
    """The machines that can run the same host code."""
    return f"{platform.machine()},{platform.system()}"


def _read_group(place: Path, filename: str) -> dict[str, str] | None:
    index = place / (_GROUP + filename)
    if not _digest_matches(index):
        return None
    try:
        names = json.loads(index.read_bytes())
    except (OSError, ValueError):
        return None
    paths = {str(name): place / str(name) for name in names}
    if not all(map(_digest_matches, paths.values())):
        return None
    return {name: str(path) for name, path in paths.items()}


def _digest_matches(path: Path) -> bool:
    try:
        return _digest_file(path).read_text() == _digest(path.read_bytes())
    except (OSError, ValueError):
        return False


def _digest_file(path: Path) -> Path:
    return path.with_name(path.name + ".digest")


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def _write_whole(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
