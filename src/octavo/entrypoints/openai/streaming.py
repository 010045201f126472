"""Server-sent events: writing them, their byte templates, and several engine streams as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec
from starlette.types import Send

from octavo.entrypoints.openai.errors import ErrorBody, Failure
from octavo.entrypoints.openai.schema.common import Usage

T = TypeVar("T")

_STARTED_AT_ONCE = 32  # streams; others get their turn in between

DONE = b"data: [DONE]\n\n"

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

to_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class StreamForm:
    """How an API writes an error within a stream, and the mark after the last event."""

    error: Callable[[Failure], bytes]
    done: bytes


class EventSink(Protocol):
    """Where the events of a stream go."""

    started: bool  # whether something was written

    @property
    def is_free(self) -> bool:
        """Whether `write_now` may be used."""

    def write_now(self, events: bytes) -> None:
        """Take events without waiting."""

    async def write(self, events: bytes) -> None:
        """Take events."""

    async def end(self, events: bytes) -> None:
        """Take the last events."""


class DirectBody(Protocol):
    """A connection's own way to send parts of a body that has begun, without waiting."""

    @property
    def is_free(self) -> bool:
        """Whether a part can be written now: the client keeps up."""

    def write(self, part: bytes) -> None:
        """Send a part; a client that has left is no error."""


class Burst:
    """Writers whose events go out together, at the loop's next turn.

    A step of the engine has news for every stream. Written in a row they find the other ends, and
    the kernel, awake; one by one, between the work on each, every write may have to wake somebody.
    """

    def __init__(self) -> None:
        self._writers: list[EventWriter] = []

    def add(self, writer: EventWriter) -> None:
        """Have what waits in a writer sent."""
        if not self._writers:
            asyncio.get_running_loop().call_soon(self._send)
        self._writers.append(writer)

    def _send(self) -> None:
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.send_waiting()


class EventWriter:
    """Sends an event stream. The status line goes out with the first event, not before.

    So whatever goes wrong until then is still answered with a status of its own.
    """

    def __init__(
        self, send: Send, direct: DirectBody | None = None, burst: Burst | None = None
    ) -> None:
        self._send = send
        self._direct = direct
        self._burst = burst or Burst()
        self._waiting = b""  # for the burst
        self.started = False
        self.ended = False

    @property
    def is_free(self) -> bool:
        """Whether `write_now` may be used: the stream has begun and the client keeps up."""
        return self.started and self._direct is not None and self._direct.is_free

    def write_now(self, events: bytes) -> None:
        """Send events soon, past the layers that only look at an answer's head."""
        if not self._waiting:
            self._burst.add(self)
        self._waiting += events

    def send_waiting(self) -> None:
        """Send what `write_now` was given."""
        waiting = self._waiting
        if waiting and self._direct is not None:
            self._waiting = b""
            self._direct.write(waiting)

    async def write(self, events: bytes) -> None:
        """Send events; waits while the client does not keep up."""
        if not self.started:
            self.started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        self.send_waiting()
        await self._send({"type": "http.response.body", "body": events, "more_body": True})

    async def end(self, events: bytes) -> None:
        """Send the last events."""
        if not self.started:
            await self.write(b"")
        self.ended = True
        self.send_waiting()
        await self._send({"type": "http.response.body", "body": events})


class ChunkTemplate:
    """The bytes of one stream's chunks: all but what changes is written once.

    A chunk is {head, "choices":[{"index":i, <body>}], <usage>}.
    """

    def __init__(
        self, response_id: str, kind: str, created: int, model: str, *, usage_null: bool
    ) -> None:
        head = to_json({"id": response_id, "object": kind, "created": created, "model": model})
        self._head = b"data: " + head[:-1] + b',"choices":['
        self._end = b',"usage":null}\n\n' if usage_null else b"}\n\n"
        self._plain_tail = b"}]" + self._end
        self._starts: dict[int, bytes] = {}

    def start(self, index: int) -> bytes:
        """A chunk up to, and without, the fields of choice `index` after its index."""
        start = self._starts.get(index)
        if start is None:
            start = self._starts[index] = self._head + b'{"index":%d,' % index
        return start

    def text(self, index: int, before: bytes, text: str, after: bytes) -> bytes:
        """A chunk of choice `index` whose only news is a text, as JSON between two constants."""
        return b"".join((self.start(index), before, to_json(text), after, self._plain_tail))

    def tail(self, usage: Usage | None = None, more: bytes = b"") -> bytes:
        """The end of a chunk, from the brace that closes its choice on.

        `more` are further fields of the chunk, each after a comma.
        """
        if usage is not None:
            return b"}]" + more + b',"usage":' + to_json(usage) + b"}\n\n"
        return b"}]" + more + self._end if more else self._plain_tail

    def usage(self, usage: Usage) -> bytes:
        """The chunk without choices that carries the usage."""
        return self._head + b'],"usage":' + to_json(usage) + b"}\n\n"


def error_event(failure: Failure) -> bytes:
    """An error that came after the status line."""
    return b"data: " + to_json(ErrorBody(failure.detail)) + b"\n\n"


OPENAI_STREAM = StreamForm(error_event, DONE)


def named_event(name: str, body: object) -> bytes:
    """An event with a name, as Anthropic's API and /v1/responses send them."""
    return b"event: " + name.encode() + b"\ndata: " + to_json(body) + b"\n\n"


async def merge(
    streams: Sequence[AsyncGenerator[T, None]],
) -> AsyncGenerator[tuple[int, T | Exception], None]:
    """The items of several streams as they come, each with its stream's number.

    An error ends its stream and comes as an item. About one item per stream waits here, so that
    the streams feel a slow reader. Closing the merged stream closes them all.
    """
    if len(streams) == 1:
        async with aclosing(streams[0]) as stream:
            try:
                async for item in stream:
                    yield 0, item
            except Exception as error:
                yield 0, error
        return
    queue: asyncio.Queue[tuple[int, T | Exception | None]] = asyncio.Queue(len(streams))
    feeds: list[asyncio.Task[None]] = []
    num_open = len(streams)
    try:
        for number, stream in enumerate(streams):
            feeds.append(asyncio.create_task(_feed(number, stream, queue)))
            if number % _STARTED_AT_ONCE == 0:
                await asyncio.sleep(0)
        while num_open:
            number, news = await queue.get()
            if news is None:
                num_open -= 1
            else:
                yield number, news
    finally:
        for feed in feeds:
            feed.cancel()
        await asyncio.gather(*feeds, return_exceptions=True)


async def _feed(
    number: int,
    source: AsyncGenerator[T, None],
    queue: asyncio.Queue[tuple[int, T | Exception | None]],
) -> None:
    async with aclosing(source) as stream:
        try:
            async for item in stream:
                await queue.put((number, item))
        except Exception as error:
            await queue.put((number, error))
    await queue.put((number, None))
