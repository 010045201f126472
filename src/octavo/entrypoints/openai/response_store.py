"""ResponseStore: where answers of /v1/responses are kept, always within a bound."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from octavo.types.errors import ConfigError
from octavo.utils.registry import Registry

T = TypeVar("T")

MAX_BYTES = 256 << 20  # of all records of one store
_BUSY_SECONDS = 10.0  # to wait for another process that writes

_SCHEMA = """
CREATE TABLE IF NOT EXISTS responses (
    key TEXT PRIMARY KEY, used REAL NOT NULL, size INTEGER NOT NULL, record BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS responses_used ON responses (used);
"""


class ResponseStore(Protocol):
    """Records by key; the one that was used longest ago goes when there is no room."""

    async def put(self, key: str, record: bytes) -> None:
        """Keep a record, in place of an older one of the same key."""

    async def get(self, key: str) -> bytes | None:
        """A record, or None."""

    async def swap(self, key: str, old: bytes, new: bytes) -> bool:
        """Put `new` in the place of `old`; False if the record is another one by now, or gone."""

    async def delete(self, key: str) -> bool:
        """Forget a record; False if there was none."""

    def close(self) -> None:
        """Let go of files and connections."""


# By string: redis is an optional dependency.
STORES: Registry[Callable[[str, int], ResponseStore]] = Registry(
    "response store",
    {
        "memory": "octavo.entrypoints.openai.response_store:open_memory",
        "sqlite": "octavo.entrypoints.openai.response_store:open_sqlite",
        "redis": "octavo.entrypoints.openai.redis_store:RedisStore",
        "rediss": "octavo.entrypoints.openai.redis_store:RedisStore",
    },
)


def check_address(address: str) -> None:
    """Raises ConfigError for an address that no store understands."""
    if _scheme(address) not in STORES:
        raise ConfigError(
            f"responses_store={address!r}: expected memory, sqlite:///FILE or redis://HOST"
        )


def open_store(address: str, max_entries: int) -> ResponseStore:
    """The store at an address. Raises ConfigError."""
    check_address(address)
    try:
        return STORES.get(_scheme(address))(address, max_entries)
    except ImportError as error:
        raise ConfigError(
            f"responses_store={address!r} needs a package ({error}); pip install 'octavo[redis]'"
        ) from None


def open_memory(address: str, max_entries: int) -> ResponseStore:
    """A store of this process that ends with it."""
    return MemoryStore(max_entries)


def open_sqlite(address: str, max_entries: int) -> ResponseStore:
    """A store in a file, which several processes may share."""
    path = urlsplit(address).path
    if not path or path == "/":
        raise ConfigError(f"responses_store={address!r} names no file; write sqlite:///FILE")
    # Three slashes: a relative path; four: an absolute one.
    return SqliteStore(Path(path[1:]), max_entries)


class MemoryStore:
    """Records in a dictionary."""

    def __init__(self, max_entries: int, max_bytes: int = MAX_BYTES) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._records: OrderedDict[str, bytes] = OrderedDict()
        self._num_bytes = 0

    async def put(self, key: str, record: bytes) -> None:
        """See ResponseStore."""
        await self.delete(key)
        self._records[key] = record
        self._num_bytes += len(record)
        while self._records and (
            len(self._records) > self._max_entries or self._num_bytes > self._max_bytes
        ):
            _, old = self._records.popitem(last=False)
            self._num_bytes -= len(old)

    async def get(self, key: str) -> bytes | None:
        """See ResponseStore."""
        record = self._records.get(key)
        if record is not None:
            self._records.move_to_end(key)
        return record

    async def swap(self, key: str, old: bytes, new: bytes) -> bool:
        """See ResponseStore."""
        if self._records.get(key) != old:
            return False
        await self.put(key, new)
        return True

    async def delete(self, key: str) -> bool:
        """See ResponseStore."""
        record = self._records.pop(key, None)
        if record is None:
            return False
        self._num_bytes -= len(record)
        return True

    def close(self) -> None:
        """See ResponseStore."""
        self._records.clear()


class SqliteStore:
    """Records in a SQLite file, written by a thread of its own."""

    def __init__(self, path: Path, max_entries: int, max_bytes: int = MAX_BYTES) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="octavo-responses")
        try:
            self._connection = self._thread.submit(_connect, path).result()
        except sqlite3.Error as error:
            raise ConfigError(f"responses_store: can't open {str(path)!r}: {error}") from None

    async def put(self, key: str, record: bytes) -> None:
        """See ResponseStore."""
        await self._run(lambda: self._put(key, record))

    async def get(self, key: str) -> bytes | None:
        """See ResponseStore."""
        return await self._run(lambda: self._get(key))

    async def swap(self, key: str, old: bytes, new: bytes) -> bool:
        """See ResponseStore."""

        def swap() -> bool:
            with self._connection as connection:
                done = connection.execute(
                    "UPDATE responses SET used = ?, size = ?, record = ? "
                    "WHERE key = ? AND record = ?",
                    (time.time(), len(new), new, key, old),
                )
                _trim(connection, self._max_entries, self._max_bytes)
                return done.rowcount > 0

        return await self._run(swap)

    async def delete(self, key: str) -> bool:
        """See ResponseStore."""

        def delete() -> bool:
            with self._connection as connection:
                done = connection.execute("DELETE FROM responses WHERE key = ?", (key,))
                return done.rowcount > 0

        return await self._run(delete)

    def close(self) -> None:
        """See ResponseStore."""
        self._thread.submit(self._connection.close).result()
        self._thread.shutdown()

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _put(self, key: str, record: bytes) -> None:
        with self._connection as connection:
            connection.execute(
                "INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?)",
                (key, time.time(), len(record), record),
            )
            _trim(connection, self._max_entries, self._max_bytes)

    def _get(self, key: str) -> bytes | None:
        with self._connection as connection:
            row = connection.execute(
                "UPDATE responses SET used = ? WHERE key = ? RETURNING record", (time.time(), key)
            ).fetchone()
        return None if row is None else bytes(row[0])


def _trim(connection: sqlite3.Connection, max_entries: int, max_bytes: int) -> None:
    """Delete what was used longest ago until the rest is within the bounds."""
    count, size = connection.execute(
        "SELECT COUNT(*), COALESCE(SUM(size), 0) FROM responses"
    ).fetchone()
    while count and (count > max_entries or size > max_bytes):
        oldest, freed = connection.execute(
            "SELECT key, size FROM responses ORDER BY used LIMIT 1"
        ).fetchone()
        connection.execute("DELETE FROM responses WHERE key = ?", (oldest,))
        count, size = count - 1, size - freed


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS)
    # Several processes open a new file at once, and SQLite does not wait for this change.
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    # A power failure may cost the last responses, never the file; a sync each costs milliseconds.
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.executescript(_SCHEMA)
    return connection


def _scheme(address: str) -> str:
    return address.partition(":")[0] if "://" in address else address
