"""A web server that passes requests on to another one, notes them, and may cut answers short."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

from support.handler_server import serving

# Headers that the proxy writes itself.
OWN = {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}


class CuttingProxy:
    """`ranges` are (file name, first byte) of every ranged read, in the order they came.

    `break_after`: how many ranged reads may pass before each further one is cut off in the middle;
    `breaks` how many are cut. `status`, if set, is the answer to everything. `most_at_once` is the
    largest number of ranged reads under way.
    """

    def __init__(self) -> None:
        self.ranges: list[tuple[str, int]] = []
        self.break_after = 0
        self.breaks = 0
        self.status: int | None = None
        self.url = ""
        self.lock = threading.Lock()
        self.under_way = 0
        self.most_at_once = 0


@contextmanager
def cutting_proxy(upstream: str) -> Iterator[CuttingProxy]:
    """Pass on to the server at `upstream` (http://host:port) until the block ends."""
    state = CuttingProxy()
    address = urlsplit(upstream).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if match is None:
                self._pass_on(cut=False)
                return
            name = unquote(urlsplit(self.path).path).rpartition("/")[2]
            with state.lock:
                state.ranges.append((name, int(match[1])))
                state.under_way += 1
                state.most_at_once = max(state.most_at_once, state.under_way)
                cut = state.breaks > 0 and state.break_after <= 0
                state.breaks -= cut
                state.break_after -= not cut
            try:
                self._pass_on(cut=cut)
            finally:
                with state.lock:
                    state.under_way -= 1

        def do_HEAD(self) -> None:
            self._pass_on(cut=False)

        def log_message(self, *args: object) -> None:
            pass

        def _pass_on(self, *, cut: bool) -> None:
            if state.status is not None:
                self.send_response(state.status)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            connection = http.client.HTTPConnection(address, timeout=30)
            # Storage emulators go by the host they are asked for.
            headers = {name.title(): value for name, value in self.headers.items()}
            headers["Host"] = address
            connection.request(self.command, self.path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            length = answer.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in OWN:
                    self.send_header(name, value)
            self.send_header("Content-Length", length or str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if cut else body)
            self.close_connection = cut
            connection.close()

    with serving(Handler) as state.url:
        yield state
