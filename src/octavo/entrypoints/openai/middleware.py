"""ASGI middleware: API keys and request-id headers."""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.entrypoints.openai.errors import failure
from octavo.entrypoints.openai.exchange import TENANT_KEY, request_id
from octavo.entrypoints.openai.keys import ApiKeys, Identity

_PREFIX = b"bearer "


class APIKeyMiddleware:
    """Lets requests with a key pass, and those for the open paths.

    Every other path is closed, also those added later; the admin paths open to admin keys only,
    which open everything else too. A key comes as `Authorization: Bearer KEY`, or as `x-api-key`,
    which Anthropic's clients send.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: ApiKeys,
        open_paths: Collection[str],
        admin_paths: Collection[str] = (),
    ) -> None:
        self._app = app
        self._keys = keys
        self._open_paths = frozenset(open_paths)
        self._admin_paths = frozenset(admin_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        identity = None if path in self._open_paths else self._identify(scope)
        if not self._may_pass(path, identity):
            await self._refuse(path, send)
            return
        if identity is not None and self._keys.are_several:
            scope[TENANT_KEY] = identity.tenant
        await self._app(scope, receive, send)

    def _may_pass(self, path: str, identity: Identity | None) -> bool:
        if path in self._admin_paths:
            return identity is not None and identity.is_admin
        return path in self._open_paths or identity is not None or not self._keys.has_clients

    def _identify(self, scope: Scope) -> Identity | None:
        for name, value in scope["headers"]:
            if name == b"authorization" and value[: len(_PREFIX)].lower() == _PREFIX:
                return self._keys.identify(value[len(_PREFIX) :].strip())
            if name == b"x-api-key":
                return self._keys.identify(value.strip())
        return None

    async def _refuse(self, path: str, send: Send) -> None:
        kind = "admin API key" if path in self._admin_paths else "API key"
        body = failure(401, f"The {kind} is missing or wrong; send Authorization: Bearer KEY").body
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"www-authenticate", b"Bearer"),
        ]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": body})


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
