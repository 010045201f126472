"""CacheEntry: what octavo has compiled and kept on disk, how large it is, when it was last used."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# Folders of the kernel cache are named by compiler and device (kernels.compile_manifest).
_DEVICE_FOLDER = re.compile(r".+-sm\d+")
_MANIFESTS = "manifests"


@dataclass(frozen=True)
class CacheEntry:
    """Something that is made again when it is missing: a file, or a folder with all in it."""

    kind: str  # "kernels", "native" or "inductor"
    group: str  # compiler and device of kernels, otherwise ""
    path: Path
    size: int  # bytes
    last_used: float  # Unix time: the latest of its files' reads and writes

    def remove(self) -> None:
        """Delete it; what is gone already is no error. Raises OSError for anything else."""
        if self.path.is_dir() and not self.path.is_symlink():
            # Another process may be deleting, or adding to, the same folder.
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)


def cache_entries(root: Path, kernel_cache: Path) -> list[CacheEntry]:
    """All entries, of which each may be removed by itself."""
    found: list[CacheEntry] = []
    for folder in _children(kernel_cache):
        if folder.is_dir() and _DEVICE_FOLDER.fullmatch(folder.name):
            places = [p for p in _children(folder) if p.name != _MANIFESTS and p.is_dir()]
            places += _children(folder / _MANIFESTS)
            found += _measured("kernels", folder.name, places)
    found += _measured("native", "", _children(root / "native"))
    found += _measured("inductor", "", _children(root / "inductor"))
    return found


def unused_since(entries: Iterable[CacheEntry], moment: float) -> list[CacheEntry]:
    """Those last used before `moment` (Unix time)."""
    return [entry for entry in entries if entry.last_used < moment]


def beyond_size(entries: Sequence[CacheEntry], limit: int) -> list[CacheEntry]:
    """The longest unused ones, without which the others take at most `limit` bytes."""
    excess = sum(entry.size for entry in entries) - limit
    chosen: list[CacheEntry] = []
    for entry in sorted(entries, key=lambda entry: entry.last_used):
        if excess <= 0:
            break
        chosen.append(entry)
        excess -= entry.size
    return chosen


def _measured(kind: str, group: str, places: Iterable[Path]) -> list[CacheEntry]:
    entries = []
    for place in places:
        size, last_used = 0, 0.0
        for path in _files(place):
            with contextlib.suppress(OSError):
                status = path.stat()
                size += status.st_size
                # Most systems note reads at most once a day (relatime), some never (noatime).
                last_used = max(last_used, status.st_atime, status.st_mtime)
        with contextlib.suppress(OSError):
            last_used = last_used or place.stat().st_mtime
            entries.append(CacheEntry(kind, group, place, size, last_used))
    return entries


def _files(place: Path) -> Iterator[Path]:
    return (p for p in place.rglob("*") if p.is_file()) if place.is_dir() else iter([place])


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
