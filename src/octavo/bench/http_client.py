"""A small HTTP/1.1 client for streams of tokens: times are taken where the bytes arrive.

One connection costs a few microseconds per event, so that a client process can follow hundreds of
streams without adding to the latencies it measures.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httptools
import msgspec


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[msgspec.Raw] | None = None

    @property
    def says_something(self) -> bool:
        return bool(self.content or self.reasoning or self.reasoning_content or self.tool_calls)


class _Choice(msgspec.Struct):
    text: str = ""
    delta: _Delta | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Error(msgspec.Struct):
    message: str = ""


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: _Error | str | None = None


_decode_event = msgspec.json.Decoder(_Event).decode


# Called with the status, some bytes of the body, and when they arrived.
OnData = Callable[[int, bytes, float], None]


@dataclass(slots=True)
class Result:
    """What one request came to; times in seconds of time.monotonic()."""

    start: float = 0.0
    end: float = 0.0
    arrivals: list[float] = field(default_factory=list)  # of events with text
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    error: str | None = None


class EventReader:
    """Server-sent events of a completion or chat stream -> a Result."""

    def __init__(self, result: Result) -> None:
        self._result = result
        self._rest = b""
        self.complete = False

    def feed(self, data: bytes, now: float) -> None:
        """Take bytes that arrived at `now`."""
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            if event.startswith(b"data: "):
                self._take(event[6:], now)

    def _take(self, data: bytes, now: float) -> None:
        if data == b"[DONE]":
            self.complete = True
            return
        event = _decode_event(data)
        if event.error is not None:
            error = event.error
            self._result.error = error if isinstance(error, str) else error.message
        if event.usage is not None:
            self._result.prompt_tokens = event.usage.prompt_tokens
            self._result.output_tokens = event.usage.completion_tokens
        if any(c.text or (c.delta is not None and c.delta.says_something) for c in event.choices):
            self._result.arrivals.append(now)


class _Connection(asyncio.Protocol):
    """One connection; one exchange at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._on_data: OnData = _ignore
        self._done: asyncio.Future[None] | None = None
        self._now = 0.0
        self.reusable = False

    async def exchange(self, request: bytes, on_data: OnData) -> int:
        """Send a request, hand the body's pieces to `on_data`; returns the status.

        Raises ConnectionError if the connection ends before the answer does.
        """
        assert self._transport is not None
        self._parser = httptools.HttpResponseParser(self)
        self._on_data = on_data
        self._done = asyncio.get_running_loop().create_future()
        self.reusable = False
        self._transport.write(request)
        try:
            await self._done
        finally:
            self._done = None
        return int(self._parser.get_status_code())

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self._now = time.monotonic()
        if self._parser is None:
            return
        try:
            self._parser.feed_data(data)
        # The parser raises what its callbacks raise, wrapped.
        except Exception as error:
            self._finish(ConnectionError(f"the answer can't be read: {error}"))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self.reusable = False
        self._finish(ConnectionError("the server closed the connection"))

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        assert self._parser is not None
        self._on_data(self._parser.get_status_code(), body, self._now)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        assert self._parser is not None
        self.reusable = bool(self._parser.should_keep_alive())
        self._finish(None)

    def _finish(self, error: Exception | None) -> None:
        if self._done is None or self._done.done():
            return
        if error is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(error)


class HTTPClient:
    """Requests to one server over connections that are used again."""

    def __init__(self, base_url: str, headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(base_url)
        self._host = parts.hostname or "localhost"
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._prefix = parts.path.rstrip("/")
        fields = {"Host": parts.netloc, **(headers or {})}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._idle: list[_Connection] = []

    async def stream(self, path: str, body: bytes) -> Result:
        """Post a request and follow its stream to the end; errors are in the result."""
        result = Result(start=time.monotonic())
        reader = EventReader(result)
        refusal = bytearray()

        def on_data(status: int, data: bytes, now: float) -> None:
            if status == 200:
                reader.feed(data, now)
            else:
                refusal.extend(data)

        try:
            status = await self._exchange("POST", path, body, on_data)
        except OSError as error:
            result.error = str(error)
        else:
            if status != 200:
                result.error = f"status {status}: {refusal[:500].decode(errors='replace')}"
            elif not reader.complete and result.error is None:
                result.error = "the stream ended without its end mark"
        result.end = time.monotonic()
        return result

    async def call(self, path: str, body: bytes | None = None) -> bytes:
        """The body of an ordinary answer. Raises OSError for anything but a 200."""
        collected = bytearray()
        method = "GET" if body is None else "POST"
        status = await self._exchange(
            method, path, body or b"", lambda _status, data, _now: collected.extend(data)
        )
        if status != 200:
            raise OSError(f"{path}: status {status}: {collected[:500].decode(errors='replace')}")
        return bytes(collected)

    def close(self) -> None:
        """Close what is open."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _exchange(self, method: str, path: str, body: bytes, on_data: OnData) -> int:
        connection = await self._connect()
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._head}"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            status = await connection.exchange(head.encode() + body, on_data)
        except BaseException:
            connection.close()
            raise
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.close()
        return status

    async def _connect(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            _Connection, self._host, self._port, ssl=self._tls
        )
        return connection


def _ignore(status: int, data: bytes, now: float) -> None:
    """Bytes that belong to no exchange."""
