"""C files as libraries: built once per machine, kept in the cache, bound by ctypes."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from ctypes import c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any, Final

from octavo.types.errors import ConfigError
from octavo.utils import envs
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

_SOURCE: Final = Path(__file__).with_name("native.c")
# Contracting products and sums to fused ones is what makes all tile heights round alike.
_FLAGS: Final = (
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-O3",
    "-march=native",
    "-ffp-contract=fast",
    "-fopenmp",
    "-fPIC",
)
_COMPILE_SECONDS: Final = 120
# Function -> (its result, its arguments).
Signatures = Mapping[str, tuple[Any, tuple[Any, ...]]]
_SIGNATURES: Final[Signatures] = {
    "octavo_lanes": (c_int64, ()),
    "octavo_panel": (c_int64, ()),
    "octavo_pack": (None, (c_void_p, c_void_p, c_int64, c_int64)),
    "octavo_linear": (None, (c_void_p,) * 4 + (c_int64,) * 3),
    "octavo_rms_norm": (None, (c_void_p,) * 4 + (c_int64,) * 2 + (c_float,)),
    "octavo_silu_and_mul": (None, (c_void_p,) * 2 + (c_int64,) * 2),
    "octavo_rope_cache": (
        None,
        (c_void_p,) * 3 + (c_float,) + (c_void_p,) * 4 + (c_int64,) * 7 + (c_int,),
    ),
    "octavo_attention": (
        c_int,
        (c_void_p, c_int64) * 2
        + (c_void_p,) * 3
        + (c_int64,)
        + (c_void_p,) * 2
        + (c_int64,) * 5
        + (c_float, c_int64, c_float),
    ),
    "octavo_greedy": (None, (c_void_p, c_int64, c_void_p, c_int64, c_int64)),
    "octavo_layers": (c_int, (c_void_p, c_int64) * 2 + (c_void_p,)),
}


class NativeUnavailable(Exception):
    """Why the C kernels can't be used here."""


@functools.cache
def native_library() -> ctypes.CDLL | None:
    """The C kernels, or None where PyTorch's are to be used; the choice is logged once.

    OCTAVO_CPU_KERNELS decides: "native", "torch", or "auto" (native where a compiler is found).
    Raises ConfigError if "native" was asked for and is not possible.

    The library leaves OpenMP's functions undefined: it finds those that torch has loaded, so that
    both share one pool of threads. torch must have been imported.
    """
    choice = envs.cpu_kernels()
    if choice not in ("auto", "native", "torch"):
        raise ConfigError(f"OCTAVO_CPU_KERNELS={choice!r} is unknown; use auto, native or torch")
    if choice == "torch":
        logger.info("CPU kernels: PyTorch's (OCTAVO_CPU_KERNELS=torch)")
        return None
    try:
        library = _load_built(_SOURCE, _SIGNATURES)
    except NativeUnavailable as error:
        if choice == "native":
            raise ConfigError(
                f"OCTAVO_CPU_KERNELS=native: {error}; mend that, or unset the variable to run "
                "PyTorch's kernels"
            ) from error
        logger.warning("CPU kernels: PyTorch's, about half as fast: %s", error)
        return None
    logger.info("CPU kernels: native, %d floats per vector", library.octavo_lanes())
    return library


def companion_library(source: Path, signatures: Signatures, without: str) -> ctypes.CDLL | None:
    """Another C file's library, or None where PyTorch's kernels are to be used.

    If that is for a fault the log says so, after `without`: what goes on without the library.
    """
    if native_library() is None:
        return None
    try:
        return _load_built(source, signatures)
    except NativeUnavailable as error:
        logger.warning("%s: %s", without, error)
        return None


def _load_built(source: Path, signatures: Signatures) -> ctypes.CDLL:
    return load(build(envs.cache_root() / "native", source), signatures)


def build(folder: Path, source: Path | None = None) -> Path:
    """The library of a C file (native.c) in `folder`, made unless it has been compiled here before.

    Its name has a hash of the source, the headers beside it, the compiler and the processor.
    Processes may build at the same time: each writes a file of its own and moves it into place.
    Raises NativeUnavailable.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NativeUnavailable("no C compiler was found (gcc or cc)")
    source = source or _SOURCE
    headers = sorted(source.parent.glob("*.h"))
    text = b"\0".join(path.read_bytes() for path in (source, *headers))
    key = hashlib.sha256(
        b"\0".join((text, " ".join(_FLAGS).encode(), _identity(compiler), _processor()))
    ).hexdigest()[:20]
    target = folder / f"{source.stem}-{key}.so"
    if target.exists():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            _compile(compiler, source, Path(work)).replace(target)
    except OSError as error:
        raise NativeUnavailable(f"{folder} can't be written ({error})") from error
    return target


def load(path: Path, signatures: Signatures = _SIGNATURES) -> ctypes.CDLL:
    """Load and bind a library. Raises NativeUnavailable if it does not fit this process."""
    try:
        library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise NativeUnavailable(f"the compiled kernels can't be loaded ({error})") from error
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


def _compile(compiler: str, source: Path, work: Path) -> Path:
    """Compile with OpenMP but link without, so that its functions stay undefined."""
    compiled, library = work / "library.o", work / "library.so"
    for command in (
        [compiler, *_FLAGS, "-c", str(source), "-o", str(compiled)],
        [compiler, "-shared", str(compiled), "-o", str(library), "-lm"],
    ):
        try:
            subprocess.run(
                command, check=True, capture_output=True, text=True, timeout=_COMPILE_SECONDS
            )
        except subprocess.CalledProcessError as error:
            words = error.stderr.strip().splitlines()
            raise NativeUnavailable(f"{compiler} failed: {words[0] if words else error}") from error
        except subprocess.TimeoutExpired as error:
            raise NativeUnavailable(f"{compiler} took over {_COMPILE_SECONDS} s") from error
    return library


def _identity(compiler: str) -> bytes:
    path = Path(compiler).resolve()
    return f"{path} {path.stat().st_mtime_ns} {path.stat().st_size}".encode()


def _processor() -> bytes:
    """What -march=native looks at: a cache on shared storage may serve several machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
    except OSError:
        return platform.processor().encode()
    return "\n".join(
        line for line in lines if line.startswith(("flags", "Features", "model name", "cpu family"))
    ).encode()
