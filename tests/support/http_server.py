"""A real HTTP server over a fake engine, in a thread of the test process."""

import asyncio
import contextlib
import socket
import threading
import time

import httpx

from octavo.config.server import ServerArgs
from octavo.entrypoints.openai.app import build_context
from octavo.entrypoints.openai.http_server import HTTPServer
from octavo.entrypoints.openai.sockets import base_url, listening_socket
from support.fake_async_llm import FakeAsyncLLM


class ServerThread(threading.Thread):
    """Serves from construction until `stop`; `error` is what ended it.

    With `send_buffer` (bytes) the kernel holds less for readers that fall behind.
    """

    def __init__(
        self, engine: FakeAsyncLLM | None = None, send_buffer: int | None = None, **options
    ) -> None:
        super().__init__(name="test-server", daemon=True)
        self._send_buffer = send_buffer
        self.engine = engine or FakeAsyncLLM()
        options = {"host": "127.0.0.1", "port": 0, "disable_uvicorn_access_log": True} | options
        self.args = ServerArgs(**options)
        self.url = ""
        self.error: BaseException | None = None
        self._bound = threading.Event()
        self.start()
        assert self._bound.wait(10)
        wait_until(lambda: self.server.started, "the server listens")

    def run(self) -> None:
        with listening_socket(self.args) as bound:
            self.url = base_url(bound, self.args)
            if self._send_buffer is not None:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
            self.server = HTTPServer(build_context(self.engine, self.args), bound)
            self._bound.set()
            try:
                asyncio.run(self._serve())
            except Exception as error:
                self.error = error

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self.server.run_until_stopped()

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.server.stop)
        self.join(10)
        assert not self.is_alive()


def wait_until(condition, what, timeout=20.0):
    """Poll until it holds; the limit is only there to end a test that fails."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"still not: {what}"
        time.sleep(0.01)


def metric(url, name, headers=None):
    """The value of a gauge or counter, by its name without prefix; 0 if it is not there."""
    text = httpx.get(f"{url}/metrics", headers=headers).text
    for line in text.splitlines():
        key, _, value = line.rpartition(" ")
        if not line.startswith("#") and key.partition("{")[0].rpartition(":")[2] == name:
            return float(value)
    return 0.0


def check_tail(url, headers=None):
    """After whatever happened: alive, an ordinary request works, nothing is left behind."""
    assert httpx.get(f"{url}/health").status_code == 200
    body = {"prompt": "Hello", "max_tokens": 2, "temperature": 0}
    reply = httpx.post(f"{url}/v1/completions", json=body, headers=headers, timeout=60)
    assert reply.status_code == 200, reply.text
    for gauge in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        wait_until(lambda gauge=gauge: metric(url, gauge, headers) == 0, f"{gauge} is 0")
