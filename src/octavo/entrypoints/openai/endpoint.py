"""Endpoint: a path with its handler and schema, what handlers answer with, and ENDPOINTS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.schema.common import RequestBody
from octavo.entrypoints.openai.streaming import EventWriter
from octavo.utils.registry import Registry


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """What a handler may know of the HTTP request besides its body."""

    id: str  # unique; the client's X-Request-Id is its beginning
    path_params: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer."""

    body: bytes
    status: int = 200
    media_type: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class EventReply:
    """An answer that is sent piece by piece as server-sent events."""

    run: Callable[[EventWriter], Awaitable[None]]


# Called as handler(context, request, body); `body` is an instance of the endpoint's schema, None
# without one.
Handler = Callable[[ServerContext, RequestInfo, Any], Awaitable[Reply | EventReply]]
Schema = type[RequestBody] | Callable[[Mapping[str, msgspec.Raw]], type[RequestBody]]


@dataclass(frozen=True)
class Endpoint:
    """One path. `schema` may be chosen by the body's fields."""

    path: str
    methods: tuple[str, ...]
    handler: Handler
    schema: Schema | None = None


def json_reply(body: msgspec.Struct) -> Reply:
    """The answer that holds a Struct."""
    return Reply(msgspec.json.encode(body))


ENDPOINTS: Registry[tuple[Endpoint, ...]] = Registry(
    "endpoint",
    {
        name: f"octavo.entrypoints.openai.endpoints.{name}:ENDPOINTS"
        for name in ("admin", "chat", "completion", "models", "tokenize")
    },
)
