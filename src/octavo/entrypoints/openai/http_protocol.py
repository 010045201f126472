"""HTTPProtocol: uvicorn's HTTP/1.1 connection with bounds on what a client may hold."""

from __future__ import annotations

import asyncio
from typing import cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from octavo.utils.logging import get_logger

logger = get_logger(__name__)

MAX_OVERHEAD = 64 << 10  # bytes of a request that are not its body, beside as many as the body has


DIRECT_BODY = "octavo.direct_body"  # of an ASGI scope: its ConnectionBody


class ConnectionBody:
    """The body of an answer that is sent in chunks; see DirectBody."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    @property
    def is_free(self) -> bool:
        """Whether a part can be written now."""
        cycle = self._cycle
        return bool(cycle.chunked_encoding) and not (
            cycle.flow.write_paused or cycle.response_complete or cycle.disconnected
        )

    def write(self, part: bytes) -> None:
        """Send a part as one chunk."""
        try:
            self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(part), part))
        # A connection that closes in this very turn of the loop; uvloop raises RuntimeError.
        except (OSError, RuntimeError) as error:
            logger.debug("a part of an answer could not be sent: %s", error)


class HTTPProtocol(HttpToolsProtocol):
    """One connection. In four things it differs from what it extends.

    - A request that comes while another one is answered is dropped, and the connection closes
      after the answer: a client may pipeline, and must then send again (RFC 9112, 9.3.2). Queued
      requests would stop the reading, and with it the notice that the client has left.
    - Headers, chunk frames and trailers are bounded.
    - A request that stands still before it is complete ends the connection.
    - An offer to change to HTTP/2, which Java's client makes with every first request, is passed
      over; the parser would take the body for the new protocol's.
    """

    stand_still = 60.0  # seconds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._ahead_of_turn = False  # whether what is parsed comes before its turn
        self._repeating = False  # whether what is parsed is a head that is known already
        self._in_head = False
        self._body_part = 0  # of what is parsed
        self._body_bytes = 0  # of the request
        self._other_bytes = 0  # of the request, and not body
        self._last_data = self.loop.time()
        self._clock = self.loop.call_later(self.stand_still, self._check_progress)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._clock.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self._is_answering():
            self.cycle.keep_alive = False
            return
        self._last_data = self.loop.time()
        self._body_part = 0
        self._unset_keepalive_if_required()
        self._parse(data)
        self._body_bytes += self._body_part
        self._other_bytes += len(data) - self._body_part
        if self._other_bytes > MAX_OVERHEAD + self._body_bytes:
            self._refuse("The request's head is too large.")

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._repeating:
            return
        self._ahead_of_turn = self._is_answering()
        if self._ahead_of_turn:
            self.cycle.keep_alive = False
            return
        self._in_head = True
        self._body_bytes = self._other_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the address."""
        if self._is_news():
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, which nobody reads."""
        if self._in_head and self._is_news():
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is complete."""
        if self._is_news():
            self._in_head = False
            super().on_headers_complete()
            # The application's task has this scope and has not run yet.
            scope = cast(dict[str, object], self.scope)
            scope[DIRECT_BODY] = ConnectionBody(self.cycle)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if not self._ahead_of_turn:
            self._body_part += len(body)
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete, unless the parser waits for another protocol."""
        if not (self._ahead_of_turn or self.parser.should_upgrade()):
            super().on_message_complete()

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
        except httptools.HttpParserError:
            self._refuse("Invalid HTTP request received.")

    def _decline(self, rest: bytes) -> None:
        """Go on in HTTP/1.1: a new parser gets what frames the body, then the rest."""
        framing = [
            b"%s: %s\r\n" % header
            for header in self.headers
            if header[0] in (b"content-length", b"transfer-encoding")
        ]
        self.parser = httptools.HttpRequestParser(self)
        self._repeating = True
        self._parse(b"POST / HTTP/1.1\r\n" + b"".join(framing) + b"\r\n")
        self._repeating = False
        if rest:
            self._parse(rest)

    def _is_news(self) -> bool:
        return not (self._ahead_of_turn or self._repeating)

    def _is_answering(self) -> bool:
        cycle = self.cycle
        return cycle is not None and not (cycle.response_complete or cycle.more_body)

    def _check_progress(self) -> None:
        waiting = self._is_answering() or self.timeout_keep_alive_task is not None
        still_for = 0.0 if waiting else self.loop.time() - self._last_data
        if still_for < self.stand_still:
            pause = self.stand_still - still_for
            self._clock = self.loop.call_later(pause, self._check_progress)
        elif self._in_head or self.cycle is not None:
            self._refuse("The request did not arrive in time.")
        else:
            self.transport.close()  # a connection that was never used

    def _refuse(self, message: str) -> None:
        cycle = self.cycle
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.close()
        elif not self.transport.is_closing():
            self.send_400_response(message)
