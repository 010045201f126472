"""KernelStart: what can be done about a GPU's kernels before torch is imported."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, Self

import msgspec

from octavo.config.octavo_config import OctavoConfig
from octavo.kernels.compile_manifest import (
    KernelManifest,
    kernel_folders,
    manifest_key,
    read_manifest,
)
from octavo.kernels.compile_process import CompileProcess
from octavo.utils import envs
from octavo.utils.registry import Registry


def kernel_computation(config: OctavoConfig) -> str:
    """Name of what `config` computes on any device of its kind."""
    device = msgspec.structs.replace(config.device, device_name="", cpu_flags=())
    return dataclasses.replace(config, device=device).compute_hash()


class Kernels(Protocol):
    """Kernels on their way to a device."""

    def finish(self) -> None:
        """Wait until those that every start needs are there."""

    def close(self) -> None:
        """The engine ends."""


class Start(Protocol):
    """What begins before a device is there."""

    def load(self, device: Any) -> Kernels:
        """Go on, now that there is a device (a torch.device)."""


# By string: Triton is there only where there is a GPU.
KERNEL_LOADERS: Registry[Callable[[KernelStart, Any], Kernels]] = Registry(
    "kernel loader", {"cuda": "octavo.kernels.compile_loader:KernelLoader"}
)


class NoKernelStart:
    """Where nothing is compiled: the CPU, and a rehearsal."""

    def load(self, device: Any) -> Kernels:
        """See Start."""
        return self

    def finish(self) -> None:
        """Nothing was begun."""

    def close(self) -> None:
        """Nothing runs."""


def begin_kernels(config: OctavoConfig) -> Start:
    """What can be done about the kernels of `config` before torch is imported.

    Those of a pooling model, which are few, are compiled when they are first run.
    """
    if config.device.device_type != "cuda" or config.model.pooler is not None:
        return NoKernelStart()
    return KernelStart.begin(config)


@dataclasses.dataclass(frozen=True)
class KernelStart:
    """The folders of the kernel cache, and the list of kernels in it or who makes one."""

    folders: list[Path]
    key: str  # of the list
    manifest: KernelManifest | None = None
    process: CompileProcess | None = None

    @classmethod
    def begin(cls, config: OctavoConfig) -> Self:
        """Find the list of an earlier start, or start the process that compiles."""
        folders = kernel_folders(config.device)
        key = manifest_key(kernel_computation(config))
        manifest = read_manifest(folders, key)
        if (manifest is not None and manifest.complete) or envs.compile_processes() == 0:
            return cls(folders, key, manifest)
        process = CompileProcess(msgspec.msgpack.encode(config))
        if manifest is not None:
            # It goes on where an earlier one was ended; this start has what it needs.
            process.leave()
        return cls(folders, key, manifest, process)

    def list_of_kernels(self) -> KernelManifest | None:
        """The list as it is now."""
        return read_manifest(self.folders, self.key)

    def load(self, device: Any) -> Kernels:
        """See Start."""
        return KERNEL_LOADERS.get("cuda")(self, device)

    def close(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            self.process.close()
