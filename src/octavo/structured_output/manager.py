"""GrammarManager: compiles grammars in threads of its own, keeps the latest, fills masks."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue

import msgspec

from octavo.structured_output.interface import (
    Grammar,
    GrammarBackend,
    GrammarError,
    MaskArray,
)
from octavo.types.sampling_params import StructuredOutputsParams
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

MAX_CACHED = 256  # grammars
MAX_CACHED_TEXT = 16 << 20  # characters of what they were compiled from


@dataclass(slots=True)
class _Job:
    spec: StructuredOutputsParams
    deadline: float  # seconds of time.monotonic()
    waiting: list[str]  # request ids


class GrammarManager:
    """Grammars by what they say; `start` and `take` belong to one thread, the engine's.

    A grammar that is not ready within `budget` seconds fails; its thread goes on to the end, for
    a library's work can't be interrupted, but the number of threads is fixed and nobody waits for
    them. (The front end tries grammars in a process that can be killed, so this is for requests
    that came another way.)
    """

    def __init__(
        self,
        make_backend: Callable[[], GrammarBackend],
        *,
        budget: float,
        num_threads: int | None = None,
        on_ready: Callable[[], None] = lambda: None,
        on_compiled: Callable[[StructuredOutputsParams, Grammar], None] = lambda _, __: None,
    ) -> None:
        """Both are called in other threads: `on_ready` whenever `take` has something to give,
        `on_compiled` with a grammar that nobody else has seen yet.
        """
        self._make_backend = make_backend
        self._budget = budget
        self._on_ready = on_ready
        self._on_compiled = on_compiled
        self._num_threads = num_threads or max(1, (os.cpu_count() or 2) // 2)
        self._num_running = 0
        self._backend: GrammarBackend | None = None
        self._backend_lock = threading.Lock()
        self._queue: SimpleQueue[tuple[bytes, _Job]] = SimpleQueue()
        self._jobs: dict[bytes, _Job] = {}
        self._cache: OrderedDict[bytes, Grammar] = OrderedDict()
        self._cached_text = 0
        self._done: deque[tuple[bytes, Grammar | GrammarError]] = deque()
        self._ready: list[tuple[str, Grammar | GrammarError]] = []

    @property
    def busy(self) -> bool:
        """Whether anybody waits for a grammar."""
        return bool(self._jobs or self._ready)

    @property
    def has_news(self) -> bool:
        """Whether `take` would give something now."""
        return bool(self._done or self._ready) or (
            bool(self._jobs) and self._first_deadline() <= time.monotonic()
        )

    def prepare(self) -> None:
        """Have the vocabulary read in the background, before the first request needs it."""
        threading.Thread(target=self._find_backend, name="octavo-grammar-0", daemon=True).start()

    def start(self, request_id: str, spec: StructuredOutputsParams) -> None:
        """Have the grammar of a request compiled, or found; `take` gives it."""
        key = _key(spec)
        grammar = self._cache.get(key)
        if grammar is not None:
            self._cache.move_to_end(key)
            self._ready.append((request_id, grammar.copy()))
            return
        job = self._jobs.get(key)
        if job is not None:
            job.waiting.append(request_id)
            return
        job = self._jobs[key] = _Job(spec, time.monotonic() + self._budget, [request_id])
        self._queue.put((key, job))
        if self._num_running < self._num_threads:
            self._num_running += 1
            name = f"octavo-grammar-{self._num_running}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._watch_deadline()

    def cancel(self, request_id: str) -> None:
        """The request needs its grammar no more; what nobody waits for is not begun."""
        self._ready = [entry for entry in self._ready if entry[0] != request_id]
        for key, job in list(self._jobs.items()):
            if request_id in job.waiting:
                job.waiting.remove(request_id)
                if not job.waiting:
                    del self._jobs[key]

    def take(self) -> list[tuple[str, Grammar | GrammarError]]:
        """Requests whose grammar is ready, or has failed, since the last call."""
        while self._done:
            key, result = self._done.popleft()
            if isinstance(result, Grammar):
                self._keep(key, result)
            job = self._jobs.pop(key, None)
            for request_id in job.waiting if job else ():
                given = result.copy() if isinstance(result, Grammar) else result
                self._ready.append((request_id, given))
        now = time.monotonic()
        for key in [key for key, job in self._jobs.items() if job.deadline <= now]:
            job = self._jobs.pop(key)
            error = GrammarError(
                f"the grammar was not compiled within {self._budget:g} s; make it simpler",
                job.spec.kind,
            )
            self._ready += [(request_id, error) for request_id in job.waiting]
        ready, self._ready = self._ready, []
        return ready

    def wait(self) -> None:
        """Sleep until `has_news`, or a short while."""
        end = time.monotonic() + self._budget
        while self._jobs and not self.has_news and time.monotonic() < end:
            time.sleep(0.002)

    def fill(self, grammars: Sequence[tuple[Grammar, int]], masks: MaskArray) -> None:
        """See GrammarBackend."""
        self._find_backend().fill(grammars, masks)

    def _find_backend(self) -> GrammarBackend:
        with self._backend_lock:
            if self._backend is None:
                began = time.monotonic()
                self._backend = self._make_backend()
                logger.debug("grammar vocabulary read in %.2f s", time.monotonic() - began)
            return self._backend

    def _work(self) -> None:
        while True:
            key, job = self._queue.get()
            if not job.waiting:
                continue
            result: Grammar | GrammarError
            try:
                result = self._find_backend().compile(job.spec)
                self._on_compiled(job.spec, result)
            except GrammarError as error:
                result = error
            except Exception as error:
                logger.exception("a grammar can't be compiled")
                result = GrammarError(
                    f"the grammar can't be compiled: {type(error).__name__}: {error}",
                    job.spec.kind,
                )
            self._done.append((key, result))
            self._on_ready()

    def _keep(self, key: bytes, grammar: Grammar) -> None:
        if len(key) > MAX_CACHED_TEXT:
            return
        if key not in self._cache:
            self._cached_text += len(key)
        self._cache[key] = grammar
        while len(self._cache) > MAX_CACHED or self._cached_text > MAX_CACHED_TEXT:
            dropped, _ = self._cache.popitem(last=False)
            self._cached_text -= len(dropped)

    def _first_deadline(self) -> float:
        return min(job.deadline for job in self._jobs.values())

    def _watch_deadline(self) -> None:
        timer = threading.Timer(self._budget + 0.01, self._on_ready)
        timer.daemon = True
        timer.start()


def _key(spec: StructuredOutputsParams) -> bytes:
    return msgspec.msgpack.encode(msgspec.structs.replace(spec, reasoning=None))
