"""CompileJob: one specialization of a kernel, as data; recorded where one would be launched."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel, make_backend
from triton.runtime.cache import get_cache_manager
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

WARP_SIZE = 32
COMPILER_MODULES = (
    "triton.compiler.code_generator",
    "triton.backends.nvidia.compiler",
    "triton.backends.nvidia.driver",
    "triton.language.extra.cuda",
    "triton.tools.disasm",
)


@dataclass(frozen=True, slots=True)
class CompileJob:
    """A kernel and everything that its code depends on."""

    module: str
    name: str
    data: str  # Triton's own description of the specialization, JSON

    @property
    def full_name(self) -> str:
        """The kernel, as Triton's description names it."""
        return f"{self.module}.{self.name}"


@contextlib.contextmanager
def recorded_launches(on_job: Callable[[CompileJob], None]) -> Iterator[None]:
    """While the body runs, kernels are neither compiled nor launched; each is told of once."""
    seen: set[tuple[str, str, str]] = set()

    def record(*, key: str, fn: Any, compile: dict[str, Any], **_: Any) -> bool:
        identity = (fn.module, fn.name, key)
        if identity not in seen:
            seen.add(identity)
            on_job(CompileJob(fn.module, fn.name, compile["specialization_data"]))
        return True

    before = knobs.runtime.jit_cache_hook
    knobs.runtime.jit_cache_hook = record
    try:
        yield
    finally:
        knobs.runtime.jit_cache_hook = before


def watch_compiler(device: int, on_compiled: Callable[[CompileJob, str], None]) -> None:
    """From now on, tell of every kernel that a launch on `device` compiles, and its entry."""

    def record(*, key: str, fn: Any, compile: dict[str, Any], **_: Any) -> None:
        kernel = fn.jit_function.device_caches[device][0].get(key)
        if kernel is not None:
            job = CompileJob(fn.module, fn.name, compile["specialization_data"])
            on_compiled(job, str(kernel.hash))

    knobs.runtime.jit_post_compile_hook = record


def launcher_kind(job: CompileJob) -> str:
    """What the host code that launches a job's kernel depends on; jobs of a kind share it."""
    return str(list(json.loads(job.data)["signature"].values()))


def target_of(capability: tuple[int, int]) -> GPUTarget:
    """The compiler's target for a compute capability."""
    major, minor = capability
    return GPUTarget("cuda", major * 10 + minor, WARP_SIZE)


def use_target(target: GPUTarget) -> None:
    """Have this process's launches mean `target`; it needs no device then, and can't launch."""
    driver.set_active(_NoDevice(target))


def prepare_compiler(target: GPUTarget) -> None:
    """Do once what every forked process would do again: imports, and digests of the compiler."""
    for module in COMPILER_MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    make_backend(target).hash()
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("triton.runtime.cache").triton_key()


class _NoDevice:
    """The part of a Triton driver that preparing a launch needs."""

    def __init__(self, target: GPUTarget) -> None:
        self._target = target

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_job(job: CompileJob, target: GPUTarget) -> str:
    """Compile a job into the kernel cache, if it isn't there; returns the entry's name.

    Needs no device. Raises whatever the compiler raises.
    """
    source, options, _ = _source_of(job)
    kernel = triton.compile(source, target=target, options=options)
    return str(kernel.hash)


def build_launcher(job: CompileJob, entry: str) -> None:
    """Compile the host code that launches the kernel of an entry, if Triton makes one for each."""
    source, _, _ = _source_of(job)
    kernel = CompiledKernel(source, _group(source, entry), entry)
    nvidia = importlib.import_module("triton.backends.nvidia.driver")
    nvidia.CudaLauncher(source, kernel.metadata)


def link_without_driver(folder: Path) -> None:
    """Let host code be linked on a machine without the driver: against an empty library.

    It can't be loaded here then, but from the cache it can where there is a driver.
    """
    nvidia = importlib.import_module("triton.backends.nvidia.driver")
    compiler = shutil.which("gcc") or shutil.which("clang")
    try:
        nvidia.library_dirs()
    except (AssertionError, OSError, subprocess.SubprocessError):
        if compiler is not None:
            name = "libcuda.so.1"
            command = [compiler, "-shared", "-o", str(folder / name), f"-Wl,-soname,{name}"]
            subprocess.run([*command, "-x", "c", os.devnull], check=False)
            knobs.nvidia.libcuda_path = str(folder)


def build_host_code() -> None:
    """Compile the host code that loads kernels, if Triton has any."""
    importlib.import_module("triton.backends.nvidia.driver").CudaUtils()


def load_job(job: CompileJob, entry: str, device: int) -> bool:
    """Give the kernel of an entry to its function on `device`, and its code to the device.

    False if the cache lacks it. Neither the kernel's source nor the compiler is looked at: what
    they are is in the name of the list that job and entry come from.
    """
    source, _, key = _source_of(job)
    group = _group(source, entry)
    if group is None:
        return False
    kernel = CompiledKernel(source, group, entry)
    kernels = source.fn.device_caches[device][0]
    if key not in kernels:
        kernels[key] = kernel
        # Its first use loads the code.
        _ = kernel.run
    return True


def _group(source: ASTSource, entry: str) -> dict[str, str] | None:
    found: dict[str, str] | None = get_cache_manager(entry).get_group(f"{source.name[:150]}.json")
    return found


def _source_of(job: CompileJob) -> tuple[ASTSource, dict[str, Any], str]:
    """(what to compile, with which options, the key in the function's table of kernels)."""
    function = getattr(importlib.import_module(job.module), job.name)
    if not isinstance(function, JITFunction):
        raise TypeError(f"{job.full_name} is not a Triton kernel")
    data = json.loads(job.data)
    constants = dict(
        zip(map(_path, data["constant_keys"]), map(_constant, data["constant_vals"]), strict=True)
    )
    attributes = dict(zip(map(_path, data["attrs_keys"]), data["attrs_vals"], strict=True))
    signature = {name: _tuples(kind) for name, kind in data["signature"].items()}
    options = {name: _tuples(value) for name, value in data["options"].items()}
    return ASTSource(function, signature, constants, attributes), options, data["key"]


def _path(key: list[int]) -> tuple[int, ...]:
    return tuple(key)


def _constant(value: Any) -> Any:
    if isinstance(value, dict):
        return tl.constexpr(value["constexpr"])
    return tl.dtype(value) if isinstance(value, str) and tl.dtype.is_dtype(value) else value


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
