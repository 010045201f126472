"""CompilePool: compile kernels on all cores, each in a process forked for it."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from triton.backends.compiler import GPUTarget

from octavo.kernels.compile_jobs import (
    CompileJob,
    build_host_code,
    build_launcher,
    compile_job,
    launcher_kind,
    prepare_compiler,
)

_PIPE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class CompileResult:
    """How a job went."""

    job: CompileJob
    entry: str  # its name in the kernel cache, "" after a failure
    seconds: float
    failure: str = ""


class CompilePool:
    """Forks from a process that has imported everything and has touched no device.

    What a compiler needs is then in memory already, and one that crashes takes nothing else down.
    Not for a process with other threads.
    """

    def __init__(
        self, target: GPUTarget, num_workers: int, on_result: Callable[[CompileResult], None]
    ) -> None:
        self._target = target
        self._num_workers = num_workers
        self.nice = 0  # by how much jobs begun from now on give way to other processes
        self._on_result = on_result
        self._waiting: deque[CompileJob] = deque()
        self._running: dict[int, tuple[CompileJob, int, float]] = {}  # by descriptor
        self._selector = selectors.DefaultSelector()
        # Kinds of host code: who makes it, whether it is made, and the results that wait for it.
        self._makers: dict[str, CompileJob] = {}
        self._made: set[str] = set()
        self._withheld: dict[str, list[CompileResult]] = {}
        prepare_compiler(target)
        if os.fork() == 0:
            _build_host_code()

    @property
    def num_left(self) -> int:
        """Jobs without a result yet."""
        return len(self._waiting) + len(self._running) + sum(map(len, self._withheld.values()))

    def submit(self, job: CompileJob) -> None:
        """Begin a job, or queue it while every worker has one."""
        self._waiting.append(job)
        self.poll(0.0)

    def poll(self, timeout: float | None) -> None:
        """Take in results that are there within `timeout` seconds; begin what there is room for."""
        self._fill()
        if self._running:
            for key, _ in self._selector.select(timeout):
                self._finish(key.fd)
            self._fill()

    def stop(self) -> None:
        """Drop all jobs."""
        self._waiting.clear()
        for descriptor, (_, pid, _) in list(self._running.items()):
            os.kill(pid, signal.SIGKILL)
            self._forget(descriptor)

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self._num_workers:
            self._start(self._waiting.popleft())

    def _start(self, job: CompileJob) -> None:
        makes_launcher = self._makers.setdefault(launcher_kind(job), job) is job
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            _work(job, self._target, makes_launcher, self.nice, writer)
        os.close(writer)
        self._running[reader] = job, pid, time.monotonic()
        self._selector.register(reader, selectors.EVENT_READ)

    def _finish(self, descriptor: int) -> None:
        # One write of less than a pipe's size: all of it is there, or nothing after a crash.
        text = os.read(descriptor, _PIPE_BYTES)
        job, _, began = self._running[descriptor]
        self._forget(descriptor)
        answer = json.loads(text) if text else {"failure": "the compiler crashed"}
        seconds = time.monotonic() - began
        self._deliver(
            CompileResult(job, answer.get("entry", ""), seconds, answer.get("failure", ""))
        )

    def _deliver(self, result: CompileResult) -> None:
        """Tell of a result when its kernel can be launched too."""
        kind = launcher_kind(result.job)
        if self._makers[kind] is not result.job and kind not in self._made:
            self._withheld.setdefault(kind, []).append(result)
            return
        self._made.add(kind)
        for ready in (result, *self._withheld.pop(kind, ())):
            self._on_result(ready)

    def _forget(self, descriptor: int) -> None:
        _, pid, _ = self._running.pop(descriptor)
        self._selector.unregister(descriptor)
        os.close(descriptor)
        os.waitpid(pid, 0)


def _build_host_code() -> None:
    """The life of the process for what all kernels share; without it the engine does that."""
    with contextlib.suppress(BaseException):
        build_host_code()
    os._exit(0)


def _work(job: CompileJob, target: GPUTarget, makes_launcher: bool, nice: int, writer: int) -> None:
    """The life of a process for one job."""
    answer: dict[str, str] = {}
    try:
        os.nice(nice)
        answer["entry"] = compile_job(job, target)
        if makes_launcher:
            build_launcher(job, answer["entry"])
    except BaseException as error:
        failure = f"{type(error).__name__}: {error}"
        # Without its launcher a kernel is worth having: the device's process makes that itself.
        if "entry" not in answer:
            answer["failure"] = failure[:2000]
    finally:
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
