"""A web server over a dict of files that answers ranges, and may be made to fail."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

from support.handler_server import serving


class RangeServer:
    """`files` by path; `requests` are (method, path, first byte or None).

    `break_after`: how many answers may pass before each further one is cut off in the middle;
    `breaks` how many are cut. `most_at_once` is the largest number of answers under way.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.requests: list[tuple[str, str, int | None]] = []
        self.ranges = True
        self.tags = True
        self.break_after = 0
        self.breaks = 0
        self.status: int | None = None
        self.url = ""
        self.lock = threading.Lock()
        self.under_way = 0
        self.most_at_once = 0

    @property
    def data_requests(self) -> list[tuple[str, int | None]]:
        """(path, first byte) of what was read."""
        return [(path, start) for method, path, start in self.requests if method == "GET"]


@contextmanager
def range_server(files: dict[str, bytes]) -> Iterator[RangeServer]:
    """Serve until the block ends."""
    state = RangeServer(files)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            with state.lock:
                state.under_way += 1
                state.most_at_once = max(state.most_at_once, state.under_way)
            try:
                self._answer(body=True)
            finally:
                with state.lock:
                    state.under_way -= 1

        def log_message(self, *args: object) -> None:
            pass

        def _answer(self, body: bool) -> None:
            path = unquote(urlsplit(self.path).path).lstrip("/")
            match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            start = int(match[1]) if match else None
            with state.lock:
                state.requests.append((self.command, path, start))
            if state.status is not None or path not in state.files:
                self.send_response(state.status or 404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            data = state.files[path]
            ranged = match is not None and state.ranges
            part = data[int(match[1]) : int(match[2]) + 1] if match and ranged else data
            self.send_response(206 if ranged else 200)
            if ranged:
                end = int(match[1]) + len(part) - 1
                self.send_header("Content-Range", f"bytes {match[1]}-{end}/{len(data)}")
            if state.tags:
                self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            if body:
                self.wfile.write(self._cut(part))

        def _cut(self, part: bytes) -> bytes:
            with state.lock:
                if state.breaks and state.break_after <= 0:
                    state.breaks -= 1
                    self.close_connection = True
                    return part[: len(part) // 2]
                state.break_after -= 1
            return part

    with serving(Handler) as state.url:
        yield state
