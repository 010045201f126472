"""RedisStore: answers of /v1/responses in a Redis server, for several hosts together."""

from __future__ import annotations

import time
from typing import Any

from redis.asyncio import Redis

_INDEX = "octavo:responses"  # a sorted set: key -> time of its last use
_PREFIX = "octavo:response:"


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

    async def delete(self, key: str) -> bool:
        """See ResponseStore."""
        await self._redis.zrem(_INDEX, key)
        return bool(await self._redis.delete(_PREFIX + key))

    def close(self) -> None:
        """The connections close with the process."""
