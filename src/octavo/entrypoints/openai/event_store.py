"""EventStore: events of background responses where every API process of a server reads them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from octavo.utils.registry import Registry

T = TypeVar("T")

MAX_BYTES = 256 << 20  # of all events of one store
READ_CHUNKS = 256  # at one time

_BUSY_SECONDS = 10.0  # to wait for another process that writes

_SCHEMA = """
CREATE TABLE IF NOT EXISTS response_events (
    key TEXT NOT NULL, number INTEGER NOT NULL, size INTEGER NOT NULL, chunk BLOB NOT NULL,
    PRIMARY KEY (key, number)
);
"""


class Chunk(msgspec.Struct, array_like=True):
    """Some events of a response, in their order."""

    first: int  # sequence number of the first one
    events: list[bytes]  # may be none: a sign of life
    ended: bool = False  # whether no more follow


decode_chunk = msgspec.msgpack.Decoder(Chunk).decode
encode_chunk = msgspec.msgpack.Encoder().encode


class EventStore(Protocol):
    """Chunks by the key of their response, which are only added to."""

    async def add(self, chunks: Mapping[str, Chunk]) -> None:
        """Add a chunk each to these responses."""

    async def read(self, key: str, begin: int) -> list[Chunk]:
        """READ_CHUNKS chunks of a response, or what there are, from number `begin` on."""

    async def forget(self, key: str) -> None:
        """Delete what there is of a response."""

    def close(self) -> None:
        """Let go of files and connections."""


# By string: redis is an optional dependency. A store in memory is of one process, which has its
# events anyway.
EVENT_STORES: Registry[Callable[[str], EventStore]] = Registry(
    "event store",
    {
        "sqlite": "octavo.entrypoints.openai.event_store:open_sqlite",
        "redis": "octavo.entrypoints.openai.redis_store:RedisEvents",
        "rediss": "octavo.entrypoints.openai.redis_store:RedisEvents",
    },
)


def open_event_store(address: str) -> EventStore | None:
    """The one beside the store of responses at this address, which is open already; or None."""
    scheme = address.partition(":")[0]
    return EVENT_STORES.get(scheme)(address) if scheme in EVENT_STORES else None


def open_sqlite(address: str) -> EventStore:
    """A table in the file of the responses."""
    return SqliteEvents(Path(urlsplit(address).path[1:]))


class SqliteEvents:
    """Chunks in a SQLite file, written by a thread of its own.

    The responses whose first chunk is oldest go when there is no room.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="octavo-events")
        self._connection = self._thread.submit(_connect, path).result()

    async def add(self, chunks: Mapping[str, Chunk]) -> None:
        """See EventStore."""
        rows = [(key, encode_chunk(chunk)) for key, chunk in chunks.items()]
        has_end = any(chunk.ended for chunk in chunks.values())

        def add() -> None:
            with self._connection as connection:
                connection.executemany(
                    "INSERT INTO response_events SELECT ?1, "
                    "COALESCE(MAX(number) + 1, 0), LENGTH(?2), ?2 "
                    "FROM response_events WHERE key = ?1",
                    rows,
                )
                if has_end:
                    self._trim(connection)

        await self._run(add)

    async def read(self, key: str, begin: int) -> list[Chunk]:
        """See EventStore."""

        def read() -> list[bytes]:
            rows = self._connection.execute(
                "SELECT chunk FROM response_events WHERE key = ? AND number >= ? "
                "ORDER BY number LIMIT ?",
                (key, begin, READ_CHUNKS),
            )
            return [chunk for (chunk,) in rows]

        return [decode_chunk(chunk) for chunk in await self._run(read)]

    async def forget(self, key: str) -> None:
        """See EventStore."""

        def forget() -> None:
            with self._connection as connection:
                connection.execute("DELETE FROM response_events WHERE key = ?", (key,))

        await self._run(forget)

    def close(self) -> None:
        """See EventStore."""
        self._thread.submit(self._connection.close).result()
        self._thread.shutdown()

    def _trim(self, connection: sqlite3.Connection) -> None:
        (size,) = connection.execute("SELECT SUM(size) FROM response_events").fetchone()
        while size > self._max_bytes:
            key, freed = connection.execute(
                "SELECT key, (SELECT SUM(size) FROM response_events AS whole WHERE "
                "whole.key = begun.key) FROM response_events AS begun WHERE number = 0 "
                "ORDER BY rowid LIMIT 1"
            ).fetchone()
            connection.execute("DELETE FROM response_events WHERE key = ?", (key,))
            size -= freed

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS)
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.executescript(_SCHEMA)
    return connection
