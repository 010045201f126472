"""The process that compiles a model's kernels: it rehearses the start and compiles on all cores."""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from octavo.config.octavo_config import OctavoConfig
from octavo.kernels.compile_cache import use_kernel_cache
from octavo.kernels.compile_jobs import (
    CompileJob,
    link_without_driver,
    recorded_launches,
    target_of,
    use_target,
)
from octavo.kernels.compile_manifest import (
    KernelManifest,
    ManifestEntry,
    kernel_folders,
    manifest_key,
    write_manifest,
)
from octavo.kernels.compile_pool import CompilePool, CompileResult
from octavo.kernels.compile_process import AllReady, Compiled, Event, StartReady
from octavo.kernels.compile_start import kernel_computation
from octavo.utils import envs
from octavo.utils.logging import get_logger
from octavo.worker.rehearsal import Rehearsal

logger = get_logger("octavo.worker.compile_server")  # also when run as a program

LENGTH_BYTES = 8  # of the prefix of the configuration on stdin
MOST_PROCESSES = 16  # each holds a few hundred MiB
BACKGROUND_NICE = 10  # of what compiles beside an engine that serves already
PARENT_POLL = 0.5  # seconds between two looks whether it still lives
STDIN, STDOUT = 0, 1


class CompileServer:
    """Compiles what one configuration needs and tells of it, the kernels of the start first."""

    def __init__(self, config: OctavoConfig) -> None:
        self._config = config
        self._began = time.monotonic()
        self._folders = kernel_folders(config.device)
        self._key = manifest_key(kernel_computation(config))
        self._results: list[CompileResult] = []
        self._order: dict[CompileJob, int] = {}
        self._num_start_jobs: int | None = None  # None: not all are known yet
        self._start_is_told = False
        self._encoder = msgspec.json.Encoder()
        self._heard = True
        if logger.getEffectiveLevel() == logging.INFO:
            # What the rehearsed parts tell of their start is not so of the engine's.
            logging.getLogger("octavo").setLevel(logging.WARNING)
        use_kernel_cache(self._folders)
        target = target_of(config.device.capability or (0, 0))
        use_target(target)
        self._folder = tempfile.TemporaryDirectory(prefix="octavo-compile-")
        link_without_driver(Path(self._folder.name))
        num_processes = envs.compile_processes() or min(config.device.num_cpus, MOST_PROCESSES)
        self._pool = CompilePool(target, num_processes, self._take)

    def run(self) -> None:
        """Compile everything; the list of it is kept for later starts.

        What comes after the start is rehearsed while its kernels are being compiled, and queues
        behind them: it takes only cores that would be idle.
        """
        rehearsal = Rehearsal(self._config)
        with recorded_launches(self._add):
            for of_start in rehearsal.run():
                if of_start:
                    self._num_start_jobs = len(self._order)
                self._poll(0.0)
        while self._pool.num_left:
            self._poll(PARENT_POLL)
        self._write_manifest(complete=True)
        self._tell(AllReady(*self._summary(), not_rehearsed=rehearsal.failed))

    def _poll(self, timeout: float) -> None:
        """Take in results; tell of the last of the start's."""
        self._pool.poll(timeout)
        if _parent_is_gone():
            self._pool.stop()
            raise SystemExit(1)
        if self._num_start_jobs is None or self._start_is_told:
            return
        done = sum(self._order[result.job] < self._num_start_jobs for result in self._results)
        if done == self._num_start_jobs:
            self._start_is_told = True
            self._write_manifest(complete=False)
            self._tell(StartReady(*self._summary()))
            self._pool.nice = BACKGROUND_NICE

    def _add(self, job: CompileJob) -> None:
        self._order[job] = len(self._order)
        self._pool.submit(job)

    def _take(self, result: CompileResult) -> None:
        self._results.append(result)
        if result.failure:
            logger.warning("can't compile %s: %s", result.job.full_name, result.failure)
        else:
            self._tell(Compiled(_entry(result), result.seconds))

    def _summary(self) -> tuple[int, int, float]:
        failed = sum(bool(result.failure) for result in self._results)
        return len(self._results) - failed, failed, time.monotonic() - self._began

    def _write_manifest(self, *, complete: bool) -> None:
        good = [result for result in self._results if not result.failure]
        good.sort(key=lambda result: self._order[result.job])
        manifest = KernelManifest(complete, [_entry(result) for result in good])
        try:
            write_manifest(self._folders[0], self._key, manifest)
        except OSError as error:
            logger.warning("the list of compiled kernels can't be kept: %s", error)

    def _tell(self, event: Event) -> None:
        left = memoryview(self._encoder.encode(event) + b"\n") if self._heard else b""
        try:
            while left:
                left = left[os.write(STDOUT, left) :]
        except BrokenPipeError:
            # The engine has all that it waits for; what else is compiled is for its next start.
            self._heard = False


def _entry(result: CompileResult) -> ManifestEntry:
    return ManifestEntry(result.job.module, result.job.name, result.job.data, result.entry)


def _parent_is_gone() -> bool:
    readable, _, _ = select.select([STDIN], [], [], 0)
    return bool(readable)


def _read_config() -> OctavoConfig:
    size = int.from_bytes(sys.stdin.buffer.read(LENGTH_BYTES), "little")
    return msgspec.msgpack.decode(sys.stdin.buffer.read(size), type=OctavoConfig)


def main() -> int:
    """The entry of the process: a configuration on stdin, events on stdout."""
    # Ctrl-C goes to every process of the terminal; this one ends when its parent has.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        CompileServer(_read_config()).run()
    except Exception as error:
        # The engine then compiles what it meets, as if there had been no such process.
        logger.warning("kernels can't be compiled ahead: %s: %s", type(error).__name__, error)
        logger.debug("where:", exc_info=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
