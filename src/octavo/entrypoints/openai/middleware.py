"""ASGI middleware: API keys and request-id headers."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.entrypoints.openai.errors import failure
from octavo.entrypoints.openai.exchange import request_id

_PREFIX = b"bearer "


class APIKeyMiddleware:
    """Lets requests with one of the keys pass, and those for the open paths.

    Every other path is closed, also those added later. Keys are compared by their digests in
    constant time, all of them, so that the time tells nothing.
    """

    def __init__(self, app: ASGIApp, keys: Iterable[str], open_paths: Collection[str]) -> None:
        self._app = app
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_open(scope) or self._has_key(scope):
            await self._app(scope, receive, send)
            return
        refused = failure(401, "The API key is missing or wrong; send Authorization: Bearer KEY")
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(refused.body)).encode()),
            (b"www-authenticate", b"Bearer"),
        ]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": refused.body})

    def _is_open(self, scope: Scope) -> bool:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        return path in self._open_paths

    def _has_key(self, scope: Scope) -> bool:
        value = next((v for k, v in scope["headers"] if k == b"authorization"), b"")
        if value[: len(_PREFIX)].lower() != _PREFIX:
            return False
        digest = hashlib.sha256(value[len(_PREFIX) :].strip()).digest()
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches)


class RequestIdMiddleware:
    """Answers every request with its id as X-Request-Id."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        header = (b"x-request-id", request_id(scope).encode())

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        await self._app(scope, receive, send_with_id)
