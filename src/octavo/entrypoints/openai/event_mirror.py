"""EventMirror and StoredEvents: the events of background responses, from process to process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from octavo.entrypoints.openai.event_store import Chunk, EventStore
from octavo.types.errors import GenerationError
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

INTERVAL = 0.1  # seconds between two looks at what is new
SIGN_OF_LIFE = 5.0  # seconds without events after which a chunk says that more may come
SILENCE = 30.0  # seconds without any chunk after which nobody writes them any more
_MAX_CHUNK = 512  # events


class Log(Protocol):
    """The events of a response as they grow."""

    ended: bool

    def slice(self, begin: int, end: int) -> list[bytes]:
        """Some of them, by their sequence numbers."""


@dataclass(slots=True)
class _Copy:
    log: Log
    num_copied: int = 0
    told_at: float = float("-inf")


class EventMirror:
    """Copies logs of this process into a store, those of all responses together.

    A store that fails is tried again with what is new by then, also if it had taken the chunk:
    readers pass over what they know.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._copies: dict[str, _Copy] = {}
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def follow(self, key: str, log: Log) -> None:
        """Copy a log until it ends."""
        self._copies[key] = _Copy(log)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="octavo-event-mirror")

    async def forget(self, key: str) -> None:
        """Delete the copy of a log, of whatever process."""
        self._copies.pop(key, None)
        await self._store.forget(key)

    def reader(self, key: str) -> StoredEvents:
        """What is and will be in the store of a log of any process."""
        return StoredEvents(self._store, key)

    async def stop(self) -> None:
        """Copy what is new for the last time, and let go of the store."""
        self._stopped = True
        if self._task is not None:
            await self._task
        await self._copy()
        self._store.close()

    async def _run(self) -> None:
        while self._copies and not self._stopped:
            await self._copy()
            await asyncio.sleep(INTERVAL)

    async def _copy(self) -> None:
        now = time.monotonic()
        chunks = {}
        for key, copy in self._copies.items():
            events = copy.log.slice(copy.num_copied, copy.num_copied + _MAX_CHUNK)
            ended = copy.log.ended and len(events) < _MAX_CHUNK
            if events or ended or now - copy.told_at > SIGN_OF_LIFE:
                chunks[key] = Chunk(copy.num_copied, events, ended)
        if not chunks:
            return
        copies = {key: self._copies[key] for key in chunks}
        try:
            await self._store.add(chunks)
        # Whatever the store's library raises; the responses themselves go on.
        except Exception as error:
            logger.warning("events of background responses could not be shared: %s", error)
            return
        for key, chunk in chunks.items():
            copies[key].num_copied += len(chunk.events)
            copies[key].told_at = now
            if chunk.ended:
                self._copies.pop(key, None)


class StoredEvents:
    """The events of one response, as its process copies them into the store."""

    def __init__(self, store: EventStore, key: str) -> None:
        self._store = store
        self._key = key

    async def exist(self) -> bool:
        """Whether the store has some of them."""
        return bool(await self._store.read(self._key, 0))

    async def read(self, after: int) -> AsyncGenerator[bytes, None]:
        """The events whose sequence numbers are above `after`, until the last one.

        Raises GenerationError if they break off.
        """
        number, position, heard = 0, 0, time.monotonic()
        while True:
            chunks = await self._store.read(self._key, number)
            number += len(chunks)
            for chunk in chunks:
                if chunk.first > position:
                    raise GenerationError("the events of this response are no longer kept")
                news = chunk.events[max(after + 1, position) - chunk.first :]
                position = max(position, chunk.first + len(chunk.events))
                if news:
                    yield b"\n\n".join([*news, b""])
                if chunk.ended:
                    return
            if chunks:
                heard = time.monotonic()
                continue
            if time.monotonic() - heard > SILENCE:
                raise GenerationError(
                    "the process that wrote this response is gone; retrieve it without stream"
                )
            await asyncio.sleep(INTERVAL)
