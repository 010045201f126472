"""EndpointApp: one HTTP exchange from body to last byte, abandoned when the client leaves."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
import uuid
from collections.abc import Callable

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import Endpoint, EventReply, Reply, RequestInfo, Schema
from octavo.entrypoints.openai.errors import Failure, describe, in_client_words
from octavo.entrypoints.openai.http_protocol import DIRECT_BODY
from octavo.entrypoints.openai.limits import INLINE_BODY_BYTES, ClientGoneError, read_body
from octavo.entrypoints.openai.schema.common import RequestBody
from octavo.entrypoints.openai.scoped_engine import ScopedEngine
from octavo.entrypoints.openai.streaming import Burst, EventWriter
from octavo.types.errors import RequestError
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

TENANT_KEY = "octavo.tenant"  # of an ASGI scope: whose API key it was
_SCOPE_KEY = "octavo.request_id"
_TRACE_HEADERS = (b"traceparent", b"tracestate")  # https://www.w3.org/TR/trace-context/
_MAX_TRACE_HEADER = 1024
_PLAIN_ID = re.compile(r"[\x21-\x7e]{1,128}")


def request_id(scope: Scope) -> str:
    """The id of a request: the client's X-Request-Id, or a new one."""
    known = scope.get(_SCOPE_KEY)
    if known is None:
        known = Request(scope).headers.get("x-request-id", "")
        if not _PLAIN_ID.fullmatch(known):
            known = uuid.uuid4().hex
        scope[_SCOPE_KEY] = known
    return str(known)


class Exchanges:
    """The requests being answered; `note_load` hears how many of them ask for model output."""

    def __init__(self, note_load: Callable[[int], None] | None = None) -> None:
        self._note_load = note_load
        self._load = 0
        self.running: set[Exchange] = set()
        self.burst = Burst()
        self.refusal: Exception | None = None  # of new work
        self._idle = asyncio.Event()

    def refuse(self, reason: Exception) -> None:
        """Take no new work: clients are told the reason. What runs goes on."""
        self.refusal = reason

    def stop(self, reason: Exception) -> None:
        """End them all, and refuse what still comes: clients are told the reason."""
        self.refuse(reason)
        for exchange in list(self.running):
            exchange.stop(reason)

    def add(self, exchange: Exchange) -> None:
        """A request begins."""
        self.running.add(exchange)
        self._load += exchange.is_work
        self._idle.clear()
        self._tell_load()

    def remove(self, exchange: Exchange) -> None:
        """A request has been answered."""
        self.running.remove(exchange)
        self._load -= exchange.is_work
        if not self.running:
            self._idle.set()
        self._tell_load()

    def _tell_load(self) -> None:
        if self._note_load is not None:
            self._note_load(self._load)

    async def wait_until_idle(self) -> None:
        """Until no request is being answered."""
        if self.running:
            await self._idle.wait()


class EndpointApp:
    """An endpoint as an ASGI application."""

    def __init__(self, endpoint: Endpoint, context: ServerContext, exchanges: Exchanges) -> None:
        self._endpoint = endpoint
        self._context = context
        self._exchanges = exchanges

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchanges = self._exchanges
        exchange = Exchange(self._endpoint, self._context, scope, receive, send, exchanges.burst)
        exchanges.add(exchange)
        try:
            await exchange.run(None if self._endpoint.while_stopping else exchanges.refusal)
        finally:
            exchanges.remove(exchange)


class Exchange:
    """One request and its answer."""

    def __init__(
        self,
        endpoint: Endpoint,
        context: ServerContext,
        scope: Scope,
        receive: Receive,
        send: Send,
        burst: Burst,
    ) -> None:
        self._endpoint = endpoint
        self._context = context
        self._scope = scope
        self._receive = receive
        self._raw_send = send
        self._writer = EventWriter(self._send, scope.get(DIRECT_BODY), burst)
        self._task: asyncio.Task[None] | None = None
        self._stop_reason: Exception | None = None
        self._started = False
        self._finished = False
        self._id = request_id(scope)
        self.is_work = endpoint.schema is not None

    def stop(self, reason: Exception) -> None:
        """End the work on it, unless its answer is complete."""
        if self._stop_reason is None and not self._finished and self._task is not None:
            self._stop_reason = reason
            self._task.cancel()

    async def run(self, refusal: Exception | None) -> None:
        """Answer, whatever happens; with the refusal, if there is one."""
        self._task = asyncio.current_task()
        try:
            if refusal is not None:
                raise refusal
            await self._answer()
        except asyncio.CancelledError:
            if self._stop_reason is None or self._task is None:
                raise
            self._task.uncancel()
            await self._fail(self._stop_reason)
        except Exception as error:
            await self._fail(error)

    async def _answer(self) -> None:
        info = self._info()
        context = self._scoped_context()
        schema = self._endpoint.schema
        if schema is None:
            reply = await self._endpoint.handler(context, info, None)
            watcher = asyncio.create_task(self._watch()) if isinstance(reply, EventReply) else None
            try:
                await self._reply(reply)
            finally:
                if watcher is not None:
                    watcher.cancel()
            return
        body = await read_body(self._scope, self._receive)
        watcher = asyncio.create_task(self._watch())
        try:
            request = await self._parse(body, schema)
            self._context.check_model(request.model)
            try:
                await self._reply(await self._endpoint.handler(context, info, request))
            except RequestError as error:
                raise in_client_words(error, request.field_names()) from None
        finally:
            watcher.cancel()

    def _info(self) -> RequestInfo:
        scope = self._scope
        query = dict(Request(scope).query_params) if scope.get("query_string") else {}
        return RequestInfo(self._id, scope.get("path_params", {}), query, scope.get(TENANT_KEY, ""))

    def _scoped_context(self) -> ServerContext:
        """What the handler works with: the engine knows whose request it is."""
        tenant = self._scope.get(TENANT_KEY)
        trace = {
            name.decode(): value.decode("latin-1")
            for name, value in self._scope["headers"]
            if name in _TRACE_HEADERS and len(value) <= _MAX_TRACE_HEADER
        }
        if tenant is None and not trace:
            return self._context
        engine = ScopedEngine(self._context.engine, tenant, trace)
        return dataclasses.replace(self._context, engine=engine)

    async def _parse(self, body: bytes, schema: Schema) -> RequestBody:
        if len(body) <= INLINE_BODY_BYTES:
            return self._parse_now(body, schema)
        return await self._context.workers.run(lambda: self._parse_now(body, schema))

    def _parse_now(self, body: bytes, schema: Schema) -> RequestBody:
        parser = self._context.parser
        kind = schema if isinstance(schema, type) else schema(parser.fields(body))
        return parser.parse(body, kind)

    async def _reply(self, reply: Reply | EventReply) -> None:
        if isinstance(reply, EventReply):
            await reply.run(self._writer)
        else:
            await self._send_whole(reply.status, reply.media_type, reply.body, reply.headers)

    async def _fail(self, error: Exception) -> None:
        self._finished = True
        if isinstance(error, ClientGoneError):
            return
        failure = describe(error, self._id)
        with contextlib.suppress(ClientGoneError):
            await self._send_failure(failure)

    async def _send_failure(self, failure: Failure) -> None:
        if self._writer.started:
            if not self._writer.ended:
                form = self._endpoint.errors.stream
                await self._writer.end(form.error(failure) + form.done)
        elif not self._started:
            headers = failure.headers
            body = self._endpoint.errors.body(failure)
            await self._send_whole(failure.status, b"application/json", body, headers)

    async def _send_whole(
        self,
        status: int,
        media_type: bytes,
        body: bytes,
        more_headers: tuple[tuple[bytes, bytes], ...],
    ) -> None:
        headers = [
            (b"content-type", media_type),
            (b"content-length", str(len(body)).encode()),
            *more_headers,
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
        elif not message.get("more_body", False):
            self._finished = True
        try:
            await self._raw_send(message)
        # A connection that closes in this very turn of the loop; uvloop raises RuntimeError.
        except (OSError, RuntimeError) as error:
            logger.debug("request %s: its answer could not be sent: %s", self._id, error)
            raise ClientGoneError from error

    async def _watch(self) -> None:
        """Wait for the client to leave; the body has been read, so nothing else can come."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.stop(ClientGoneError())
