"""Endpoint: a path with its handler and schema, what handlers answer with, and ENDPOINTS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.errors import ErrorBody, Failure
from octavo.entrypoints.openai.schema.common import RequestBody
from octavo.entrypoints.openai.streaming import OPENAI_STREAM, EventSink, StreamForm
from octavo.utils.registry import Registry


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """What a handler may know of the HTTP request besides its body."""

    id: str  # unique; the client's X-Request-Id is its beginning
    path_params: Mapping[str, str]
    query: Mapping[str, str] = field(default_factory=dict)
    tenant: str = ""  # tells clients with different keys apart


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

    run: Callable[[EventSink], Awaitable[None]]


# Called as handler(context, request, body); `body` is an instance of the endpoint's schema, None
# without one.
Handler = Callable[[ServerContext, RequestInfo, Any], Awaitable[Reply | EventReply]]
Schema = type[RequestBody] | Callable[[Mapping[str, msgspec.Raw]], type[RequestBody]]


@dataclass(frozen=True, slots=True)
class ErrorForm:
    """How an API writes its errors."""

    body: Callable[[Failure], bytes]  # of a whole answer
    stream: StreamForm
    schema: type[msgspec.Struct] = ErrorBody  # of `body`


OPENAI_ERRORS = ErrorForm(lambda failure: failure.body, OPENAI_STREAM)


@dataclass(frozen=True)
class Endpoint:
    """One path. `schema` may be chosen by the body's fields, among `bodies`."""

    path: str
    methods: tuple[str, ...]
    handler: Handler
    schema: Schema | None = None
    bodies: tuple[type[RequestBody], ...] = ()
    reply: type[msgspec.Struct] | None = None  # of an answer that is not streamed
    errors: ErrorForm = OPENAI_ERRORS
    streams_by_query: bool = False  # a query parameter may ask for a stream
    is_admin: bool = False  # served to admin keys only
    while_stopping: bool = False  # served also when the server takes no new work


def json_reply(body: msgspec.Struct) -> Reply:
    """The answer that holds a Struct."""
    return Reply(msgspec.json.encode(body))


def find_endpoint(path: str) -> Endpoint:
    """The endpoint of a path. Raises LookupError."""
    for name in ENDPOINTS:
        for endpoint in ENDPOINTS.get(name):
            if endpoint.path == path:
                return endpoint
    raise LookupError(f"no endpoint {path!r}")


ENDPOINTS: Registry[tuple[Endpoint, ...]] = Registry(
    "endpoint",
    {
        name: f"octavo.entrypoints.openai.endpoints.{name}:ENDPOINTS"
        for name in (
            "admin",
            "chat",
            "completion",
            "conversations",
            "embeddings",
            "generate",
            "grammar",
            "health",
            "invocations",
            "messages",
            "models",
            "openapi",
            "pooling",
            "profile",
            "render",
            "responses",
            "score",
            "tokenize",
        )
    },
)
