"""Trials: grammars checked in child processes that are killed when they take too long.

The child is this module: it reads a StructuredOutputsParams in msgpack, answers with a Verdict,
and so on until its standard input ends.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import IO

import msgspec

from octavo.structured_output.interface import BACKENDS, GrammarError
from octavo.types.errors import QueueFullError
from octavo.types.sampling_params import StructuredOutputsParams

LENGTH_BYTES = 4
MAX_MEMORY = 4 << 30  # bytes of address space that a child may come to need
MAX_WAITING = 64  # checks
MAX_VERDICTS = 1024
MAX_VERDICT_KEY = 64 << 10  # bytes of a spec whose verdict is kept


class Verdict(msgspec.Struct, array_like=True):
    """What came of a check: no error, or an error and the field at fault."""

    error: str | None = None
    param: str | None = None


class GrammarTrials:
    """Checks grammars, each within `budget` seconds, in at most `num_children` processes.

    A process is started when it is first needed; one that exceeds its time or memory is killed and
    replaced. `check` blocks, so it is for threads.
    """

    def __init__(self, backend: str, budget: float, num_children: int = 2) -> None:
        self._backend = backend
        self._budget = budget
        self._children = [_Child(backend) for _ in range(num_children)]
        self._free = list(self._children)
        self._free_changed = threading.Condition()
        self._num_waiting = 0
        self._verdicts: OrderedDict[bytes, Verdict] = OrderedDict()
        self._closed = False

    def check(self, spec: StructuredOutputsParams) -> None:
        """Raise GrammarError for a spec that can't be served, QueueFullError if too many wait."""
        request = msgspec.msgpack.encode(msgspec.structs.replace(spec, reasoning=None))
        verdict = self._verdicts.get(request)
        if verdict is None:
            verdict = self._try(request, spec.kind)
            if len(request) <= MAX_VERDICT_KEY:
                self._remember(request, verdict)
        if verdict.error is not None:
            raise GrammarError(verdict.error, verdict.param)

    def close(self) -> None:
        """End the children."""
        with self._free_changed:
            self._closed = True
            for child in self._children:
                child.stop()

    def _remember(self, request: bytes, verdict: Verdict) -> None:
        with self._free_changed:
            self._verdicts[request] = verdict
            if len(self._verdicts) > MAX_VERDICTS:
                self._verdicts.popitem(last=False)

    def _try(self, request: bytes, kind: str) -> Verdict:
        with self._free_changed:
            if self._num_waiting >= MAX_WAITING:
                raise QueueFullError("too many grammars wait to be checked; try again later")
            self._num_waiting += 1
            try:
                self._free_changed.wait_for(lambda: self._free)
                child = self._free.pop()
            finally:
                self._num_waiting -= 1
        try:
            answer = child.ask(request, self._budget)
        finally:
            with self._free_changed:
                if self._closed:
                    child.stop()
                self._free.append(child)
                self._free_changed.notify()
        if answer is None:
            return Verdict(
                f"{kind}: it could not be compiled within {self._budget:g} s and the memory there "
                "is for it; make it simpler",
                kind,
            )
        return msgspec.msgpack.decode(answer, type=Verdict)


class _Child:
    """One process, alive or not yet."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: bytes, budget: float) -> bytes | None:
        """The answer; None if the child was killed for its time, or has died."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        try:
            self._send(request)
            answer = self._receive(time.monotonic() + budget)
        except OSError:
            answer = None
        if answer is None:
            self.kill()
        return answer

    def kill(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def stop(self) -> None:
        """Kill the process, from whichever thread; who waits for its answer gets none."""
        if self._process is not None:
            self._process.kill()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, self._backend],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        # Its imports are not the grammar's time.
        self._receive(time.monotonic() + 60)

    def _send(self, request: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(len(request).to_bytes(LENGTH_BYTES, "little") + request)
        self._process.stdin.flush()

    def _receive(self, deadline: float) -> bytes | None:
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        data = b""
        size = LENGTH_BYTES
        while len(data) < size:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                return None
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                return None
            data += chunk
            if len(data) >= LENGTH_BYTES:
                size = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
        return data[LENGTH_BYTES:]


def judge(backend: str, request: bytes) -> Verdict:
    """The verdict on a spec in msgpack."""
    try:
        spec = msgspec.msgpack.decode(request, type=StructuredOutputsParams)
        BACKENDS.get(backend).check(spec)
    except GrammarError as error:
        return Verdict(str(error), error.param)
    except (MemoryError, RecursionError) as error:
        return Verdict(f"the grammar takes too much: {type(error).__name__}", None)
    return Verdict()


def main() -> int:
    """Answer until standard input ends."""
    # Ctrl-C goes to every process of the terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, target = sys.stdin.buffer, sys.stdout.buffer
    backend = sys.argv[1]
    # What the library is made of is not the grammar's memory.
    judge(backend, msgspec.msgpack.encode(StructuredOutputsParams(json_object=True)))
    most = _address_space() + MAX_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    _answer(target, b"")
    while len(head := source.read(LENGTH_BYTES)) == LENGTH_BYTES:
        request = source.read(int.from_bytes(head, "little"))
        _answer(target, msgspec.msgpack.encode(judge(backend, request)))
    return 0


def _address_space() -> int:
    """Bytes of address space that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def _answer(target: IO[bytes], data: bytes) -> None:
    target.write(len(data).to_bytes(LENGTH_BYTES, "little") + data)
    target.flush()


if __name__ == "__main__":
    sys.exit(main())
