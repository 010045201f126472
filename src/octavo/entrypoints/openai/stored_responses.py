"""Responses in the store: found by their id and sender, and kept up to date while written."""

from __future__ import annotations

import asyncio

import msgspec

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import RequestInfo
from octavo.entrypoints.openai.responses_chat import messages_of
from octavo.entrypoints.openai.schema.responses import StoredResponse
from octavo.types.errors import MissingError

UNFINISHED = ("queued", "in_progress")

_decode = msgspec.msgpack.Decoder(StoredResponse).decode
_encode = msgspec.msgpack.Encoder().encode


def store_key(info: RequestInfo, response_id: str) -> str:
    """Under what a response is stored: clients with different keys see their own only."""
    return f"{info.tenant}/{response_id}"


def missing(response_id: str, param: str = "response_id") -> MissingError:
    """The error for a response that is not there."""
    return MissingError(f"There is no stored response {response_id!r:.128}", param)


async def load_response(
    context: ServerContext, info: RequestInfo, response_id: str, param: str = "response_id"
) -> StoredResponse:
    """A stored response. Raises MissingError, which names `param`."""
    record = await context.responses.get(store_key(info, response_id))
    if record is None:
        raise missing(response_id, param)
    return _decode(record)


class ResponseKeeper:
    """Stores a response as it stands, if it is to be stored."""

    def __init__(self, context: ServerContext, info: RequestInfo, stored: StoredResponse) -> None:
        self._context = context
        self._stored = stored
        self._messages = list(stored.messages)
        self._kept_status = ""
        self.key = store_key(info, stored.response.id)

    async def keep(self) -> None:
        """Put its present state into the store."""
        response = self._stored.response
        if not response.store:
            return
        self._stored.messages = self._messages + messages_of(response.output)
        await self._context.responses.put(self.key, _encode(self._stored))
        self._kept_status = response.status

    async def settle(self) -> None:
        """Store how it ended, if that has not been stored: its client may have left."""
        response = self._stored.response
        if response.status in UNFINISHED:
            response.status = "cancelled"
        if response.status != self._kept_status:
            await asyncio.shield(self.keep())
