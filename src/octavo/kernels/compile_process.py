"""CompileProcess: the process that finds out which kernels a model needs and compiles them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from octavo.kernels.compile_manifest import ManifestEntry
from octavo.utils import envs

SERVER_MODULE = "octavo.worker.compile_server"
STOP_AFTER = 2.0  # seconds between asking the process to end and killing it


class Compiled(msgspec.Struct, frozen=True, tag=True):
    """A kernel is in the cache."""

    kernel: ManifestEntry
    seconds: float


class StartReady(msgspec.Struct, frozen=True, tag=True):
    """Every kernel that the start needs has been told of; the others are still being compiled."""

    num_kernels: int
    num_failed: int
    seconds: float


class AllReady(msgspec.Struct, frozen=True, tag=True):
    """Everything is compiled that could be."""

    num_kernels: int
    num_failed: int
    seconds: float
    not_rehearsed: list[str]  # steps whose kernels are compiled when they are met


Event = Compiled | StartReady | AllReady


class CompileProcess:
    """Starts at once, beside the import of torch in this process; it never touches the device.

    It ends by itself when all is compiled, or with this process.
    """

    def __init__(self, config: bytes, folder: Path | None = None) -> None:
        """`config`: an OctavoConfig in msgpack; `folder`: of the kernel cache, if not ours."""
        # A process that sees no device can't make a context on one by mistake.
        values = {"PYTHONPATH": envs.python_path(), "CUDA_VISIBLE_DEVICES": ""}
        if folder is not None:
            values["OCTAVO_KERNEL_CACHE"] = str(folder)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", SERVER_MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=envs.child_environment(values),
        )
        if self._process.stdin is not None:
            # It stays open: its end tells the process that this one is gone.
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(len(config).to_bytes(8, "little") + config)
                self._process.stdin.flush()

    def events(self) -> Iterator[Event]:
        """What it tells, as it comes, until it ends."""
        decoder = msgspec.json.Decoder(Event)
        for line in self._process.stdout or ():
            yield decoder.decode(line)

    def leave(self) -> None:
        """Hear no more of it; it goes on."""
        if self._process.stdout is not None:
            self._process.stdout.close()

    def kill(self) -> None:
        """End it at once, also while another thread waits for its events."""
        self._process.kill()

    def close(self) -> None:
        """End it, whatever it does; safe to call twice."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(STOP_AFTER)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
