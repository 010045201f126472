"""Responses in the store: found by their id and sender, and kept up to date while written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import RequestInfo
from octavo.entrypoints.openai.responses_chat import messages_of
from octavo.entrypoints.openai.schema.responses import StoredResponse
from octavo.types.errors import MissingError

PREFIX = "resp_"  # of ids; other records are in the store too
UNFINISHED = ("queued", "in_progress")
ANSWERED = ("completed", "incomplete")

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
    """A stored response, or one that is being written here. Raises MissingError, naming `param`."""
    key = store_key(info, response_id)
    unfinished = context.unfinished_responses.get(key)
    if unfinished is not None:
        return unfinished
    record = await context.responses.get(key)
    if record is None or not response_id.startswith(PREFIX):
        raise missing(response_id, param)
    return _decode(record)


async def delete_response(context: ServerContext, info: RequestInfo, response_id: str) -> None:
    """Forget a response; one that is being written is not stored when it ends.

    Raises MissingError.
    """
    key = store_key(info, response_id)
    unfinished = context.unfinished_responses.pop(key, None)
    if unfinished is not None:
        unfinished.response.store = False
    await context.background.forget(key)
    known = response_id.startswith(PREFIX) and await context.responses.delete(key)
    if unfinished is None and not known:
        raise missing(response_id)


class ResponseKeeper:
    """Stores a response as it stands, if it is to be stored.

    `note_end` is awaited once, when the response has ended with an answer.
    """

    def __init__(
        self,
        context: ServerContext,
        info: RequestInfo,
        stored: StoredResponse,
        note_end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._context = context
        self._stored = stored
        self._note_end = note_end
        self._messages = list(stored.messages)
        self._kept_status = ""
        self.key = store_key(info, stored.response.id)

    async def keep(self) -> None:
        """Put its present state into the store."""
        response = self._stored.response
        if self._note_end is not None and response.status in ANSWERED:
            note_end, self._note_end = self._note_end, None
            await note_end()
        if not response.store:
            return
        self._stored.messages = self._messages + messages_of(response.output)
        await self._context.responses.put(self.key, _encode(self._stored))
        self._kept_status = response.status
        if response.status in UNFINISHED:
            self._context.unfinished_responses[self.key] = self._stored

    async def settle(self) -> None:
        """Store how it ended, if that has not been stored: its client may have left."""
        response = self._stored.response
        self._context.unfinished_responses.pop(self.key, None)
        if response.status in UNFINISHED:
            response.status = "cancelled"
        if response.status != self._kept_status:
            await asyncio.shield(self.keep())
