"""BackgroundRuns: responses that are written whether or not a client waits, and their events."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable

from octavo.entrypoints.openai.event_mirror import EventMirror, StoredEvents
from octavo.types.errors import QueueFullError
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

MAX_RUNS = 1024  # at one time
MAX_BYTES = 64 << 20  # of the events of responses that have ended

_EVENT_END = b"\n\n"


class EventLog:
    """The events of one response, kept for readers that come late or come back.

    An EventSink: writing never waits for a reader.
    """

    def __init__(self) -> None:
        self.started = False
        self.ended = False
        self.num_bytes = 0
        self._events: list[bytes] = []
        self._waiting: list[asyncio.Future[None]] = []  # readers that have read it all

    @property
    def is_free(self) -> bool:
        """See EventSink."""
        return self.started

    def write_now(self, events: bytes) -> None:
        """See EventSink."""
        self.started = True
        self.num_bytes += len(events)
        self._events += events.split(_EVENT_END)[:-1]
        self._wake()

    async def write(self, events: bytes) -> None:
        """See EventSink."""
        self.write_now(events)

    async def end(self, events: bytes) -> None:
        """See EventSink."""
        self.write_now(events)
        self.ended = True

    def slice(self, begin: int, end: int) -> list[bytes]:
        """Some of the events so far, by their sequence numbers."""
        return self._events[begin:end]

    async def read(self, after: int) -> AsyncGenerator[bytes, None]:
        """The events whose sequence numbers are above `after`, until the last one."""
        position = after + 1
        while True:
            news = self._events[position:]
            if news:
                position += len(news)
                yield _EVENT_END.join([*news, b""])
            elif self.ended:
                return
            else:
                waiting = asyncio.get_running_loop().create_future()
                self._waiting.append(waiting)
                await waiting

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for reader in waiting:
            if not reader.done():
                reader.set_result(None)


class BackgroundRuns:
    """The responses being written in this process, and the events of those that have ended.

    The events of the ones that ended longest ago go when there are too many. With a `mirror`
    other processes have them too.
    """

    def __init__(
        self,
        mirror: EventMirror | None = None,
        *,
        max_runs: int = MAX_RUNS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._mirror = mirror
        self._max_runs = max_runs
        self._max_bytes = max_bytes
        self._running: dict[str, asyncio.Task[None]] = {}
        self._logs: OrderedDict[str, EventLog] = OrderedDict()
        self._ended_bytes = 0

    def check_room(self) -> None:
        """Raises QueueFullError if no response more may be begun."""
        if len(self._running) >= self._max_runs:
            raise QueueFullError(
                f"{len(self._running)} background responses are being written; try again later"
            )

    def start(self, key: str, write: Callable[[EventLog], Awaitable[None]]) -> EventLog:
        """Have a response written; returns its events. Cancelled, `write` must still return."""
        log = self._logs[key] = EventLog()
        if self._mirror is not None:
            self._mirror.follow(key, log)

        async def run() -> None:
            try:
                await write(log)
            except Exception:
                logger.exception("a response in the background could not be stored")
            if not log.ended:
                await log.end(b"")
            del self._running[key]
            self._note_end(key, log)

        self._running[key] = asyncio.create_task(run(), name="octavo-background")
        return log

    async def events(self, key: str, *, may_begin: bool) -> EventLog | StoredEvents | None:
        """The events of a response of this process or another one, if they are kept.

        `may_begin`: another process is about to write some.
        """
        log = self._logs.get(key)
        if log is not None or self._mirror is None:
            return log
        stored = self._mirror.reader(key)
        return stored if may_begin or await stored.exist() else None

    async def cancel(self, key: str) -> bool:
        """End a response and wait until it has ended; False if it is not being written here."""
        task = self._running.get(key)
        if task is None:
            return False
        await asyncio.sleep(0)  # it has begun then, and ends in its own words
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
        return True

    async def forget(self, key: str) -> None:
        """End a response, if it is being written here, and let its events go."""
        await self.cancel(key)
        if self._mirror is not None:
            await self._mirror.forget(key)
        log = self._logs.pop(key, None)
        if log is not None:
            self._ended_bytes -= log.num_bytes

    async def wait_until_idle(self) -> None:
        """Until no response is being written."""
        while self._running:
            await asyncio.wait(self._running.values())

    async def stop(self) -> None:
        """End them all."""
        for key in list(self._running):
            await self.cancel(key)
        if self._mirror is not None:
            await self._mirror.stop()

    def _note_end(self, key: str, log: EventLog) -> None:
        self._ended_bytes += log.num_bytes
        self._logs.move_to_end(key)
        for old in list(self._logs):
            if self._ended_bytes <= self._max_bytes:
                return
            if old not in self._running:
                self._ended_bytes -= self._logs.pop(old).num_bytes
