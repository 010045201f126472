"""RedisStore: answers of /v1/responses in a Redis server, for several hosts together."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import WatchError

from octavo.entrypoints.openai.event_store import (
    READ_CHUNKS,
    Chunk,
    decode_chunk,
    encode_chunk,
)

_INDEX = "octavo:responses"  # a sorted set: key -> time of its last use
_PREFIX = "octavo:response:"
_EVENTS = "octavo:events:"
_EVENTS_KEPT = 3600  # seconds after the last one


class RedisStore:
    """Records as strings, with a sorted set beside them that says which one goes first."""

    def __init__(self, address: str, max_entries: int) -> None:
        # Its answers are typed as whatever any setting might make of them.
        self._redis: Any = Redis.from_url(address)
        self._max_entries = max_entries

    async def put(self, key: str, record: bytes) -> None:
        """See ResponseStore."""
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.set(_PREFIX + key, record)
            pipe.zadd(_INDEX, {key: time.time()})
            pipe.zcard(_INDEX)
            *_, count = await pipe.execute()
        if count > self._max_entries:
            popped: list[tuple[bytes, float]] = await self._redis.zpopmin(
                _INDEX, count - self._max_entries
            )
            for oldest, _ in popped:
                await self._redis.delete(_PREFIX + oldest.decode())

    async def get(self, key: str) -> bytes | None:
        """See ResponseStore."""
        record: bytes | None = await self._redis.get(_PREFIX + key)
        if record is not None:
            await self._redis.zadd(_INDEX, {key: time.time()}, xx=True)
        return record

    async def swap(self, key: str, old: bytes, new: bytes) -> bool:
        """See ResponseStore."""
        async with self._redis.pipeline(transaction=True) as pipe:
            await pipe.watch(_PREFIX + key)
            if await pipe.get(_PREFIX + key) != old:
                return False
            pipe.multi()
            pipe.set(_PREFIX + key, new)
            pipe.zadd(_INDEX, {key: time.time()})
            try:
                await pipe.execute()
            except WatchError:
                return False
        return True

    async def delete(self, key: str) -> bool:
        """See ResponseStore."""
        await self._redis.zrem(_INDEX, key)
        return bool(await self._redis.delete(_PREFIX + key))

    def close(self) -> None:
        """The connections close with the process."""


class RedisEvents:
    """Chunks of events as one list per response, which Redis drops an hour after the last one."""

    def __init__(self, address: str) -> None:
        self._redis: Any = Redis.from_url(address)

    async def add(self, chunks: Mapping[str, Chunk]) -> None:
        """See EventStore."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for key, chunk in chunks.items():
                pipe.rpush(_EVENTS + key, encode_chunk(chunk))
                pipe.expire(_EVENTS + key, _EVENTS_KEPT)
            await pipe.execute()

    async def read(self, key: str, begin: int) -> list[Chunk]:
        """See EventStore."""
        found = await self._redis.lrange(_EVENTS + key, begin, begin + READ_CHUNKS - 1)
        return [decode_chunk(chunk) for chunk in found]

    async def forget(self, key: str) -> None:
        """See EventStore."""
        await self._redis.delete(_EVENTS + key)

    def close(self) -> None:
        """The connections close with the process."""
