"""KernelManifest: which kernels a configured model needs, so that a start can load them at once.

Read before torch and Triton are imported, and imports neither.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
import uuid
from pathlib import Path

import msgspec

from octavo.types.platform_info import PlatformInfo
from octavo.utils import envs

NO_TRITON = "no-triton"
# Packages that neither hold kernels nor have a part in which are launched.
_APART = frozenset(
    {"bench", "checkpoints", "cli", "core", "engine", "entrypoints"}
    | {"structured_output", "tokenizers"}
)


class ManifestEntry(msgspec.Struct, frozen=True, array_like=True):
    """A compiled specialization of a kernel."""

    module: str
    name: str
    data: str  # Triton's own description of the specialization, JSON
    entry: str  # its name in the kernel cache


class KernelManifest(msgspec.Struct, frozen=True):
    """What a start compiled, in the order in which it needed it."""

    complete: bool  # whether what may be met later is there too
    kernels: list[ManifestEntry]


def kernel_folders(device: PlatformInfo) -> list[Path]:
    """Where the kernels of a device are kept: the folder that is written to, then shared ones.

    The name says what compiled kernels and the host code beside them can't do without: see
    compiler_name, and the compute capability. Any number of versions may share a folder.
    """
    major, minor = device.capability or (0, 0)
    name = f"{compiler_name()}-sm{major}{minor}"
    return [folder / name for folder in (envs.kernel_cache(), *envs.shared_kernel_caches())]


def compiler_name() -> str:
    """The installed Triton's version, and for which Python and processor it writes host code.

    Not which build of that version it is: wheels for other Pythons give the same kernels, and a
    build from unreleased sources has a version of its own. NO_TRITON without one.
    """
    if importlib.util.find_spec("triton") is None:
        return NO_TRITON
    version = importlib.metadata.version("triton")
    return f"triton-{version}-{sys.implementation.cache_tag}-{platform.machine()}"


def manifest_key(computation: str) -> str:
    """Name of the manifest for a computation (OctavoConfig.compute_hash) by this octavo.

    The sources decide what is launched and how, so the content counts of every file that may have
    a part in it. The version of torch does not: what a list lacks is compiled when it is met.
    """
    digest = hashlib.blake2b(computation.encode(), digest_size=16)
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if name.parts[0] not in _APART:
            digest.update(f"|{name.as_posix()}|".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def read_manifest(folders: list[Path], key: str) -> KernelManifest | None:
    """The manifest of a key, or None where there is none that can be read."""
    for folder in folders:
        try:
            return msgspec.json.decode(_path(folder, key).read_bytes(), type=KernelManifest)
        except (OSError, msgspec.MsgspecError):
            continue
    return None


def write_manifest(folder: Path, key: str, manifest: KernelManifest) -> None:
    """Keep a manifest; it appears whole or not at all. Raises OSError."""
    path = _path(folder, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}")
    temporary.write_bytes(msgspec.json.encode(manifest))
    os.replace(temporary, path)


def _path(folder: Path, key: str) -> Path:
    return folder / "manifests" / f"{key}.json"
