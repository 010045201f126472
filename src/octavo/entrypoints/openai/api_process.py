"""One of several processes that answer HTTP for one engine core, started by the supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable

import msgspec
import uvloop

from octavo.config.octavo_config import OctavoConfig
from octavo.config.server import ServerArgs
from octavo.engine.async_llm import AsyncLLM
from octavo.engine.core_link import AttachedCore, ClientAddress
from octavo.engine.metric_page import MetricPage
from octavo.entrypoints.openai.app import build_context
from octavo.entrypoints.openai.http_server import HTTPServer
from octavo.types.errors import EngineDeadError
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

LENGTH_BYTES = 8  # of the prefix of the ApiStart on stdin
READY = b"\x01"  # written to the ready descriptor once HTTP is served
STDIN = 0


class ApiStart(msgspec.Struct):
    """What the process reads from its standard input; after it come lines with orders."""

    config: OctavoConfig
    args: ServerArgs
    address: ClientAddress
    client_index: int  # among the core's front ends; the supervisor is 0
    num_front_ends: int
    socket_fd: int
    page_fd: int
    ready_fd: int


class Orders:
    """Lines on standard input: "drain", "stop" or "dead REASON". Its end means: end at once.

    Until there is a `handler` an order to stop ends the process.
    """

    def __init__(self) -> None:
        self.handler: Callable[[str, str], None] | None = None

    def follow(self) -> None:
        """Carry out orders, in a thread of their own."""
        threading.Thread(target=self._read, name="octavo-orders", daemon=True).start()

    def _read(self) -> None:
        rest = b""
        while data := os.read(STDIN, 1 << 16):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                order, _, text = line.decode().partition(" ")
                if self.handler is not None:
                    self.handler(order, text)
                elif order in ("drain", "stop"):
                    os._exit(0)
        os._exit(1)


def main() -> int:
    """Serve until an order or the engine's death ends it."""
    # The terminal's and the service manager's signals reach every process; the supervisor decides.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    start = read_start()
    orders = Orders()
    orders.follow()
    bound = socket.socket(fileno=start.socket_fd)
    engine = AsyncLLM(
        start.config,
        clamp_max_tokens=start.args.clamp_max_tokens,
        core=lambda: AttachedCore(start.address),
        client_index=start.client_index,
        page=MetricPage.attach(start.page_fd, start.num_front_ends + 1),
        num_front_ends=start.num_front_ends,
    )
    try:
        uvloop.run(_serve(engine, start, bound, orders))
    except EngineDeadError:
        return 1
    finally:
        engine.shutdown()
    return 0


def read_start() -> ApiStart:
    """The message that comes first."""
    size = int.from_bytes(_read_exactly(LENGTH_BYTES), "little")
    return msgspec.msgpack.decode(_read_exactly(size), type=ApiStart)


async def _serve(engine: AsyncLLM, start: ApiStart, bound: socket.socket, orders: Orders) -> None:
    def when_ready() -> None:
        os.write(start.ready_fd, READY)
        os.close(start.ready_fd)

    server = HTTPServer(build_context(engine, start.args), bound, when_ready=when_ready)
    call = asyncio.get_running_loop().call_soon_threadsafe

    def carry_out(order: str, text: str) -> None:
        match order:
            case "drain":
                call(server.drain)
            case "stop":
                call(server.stop)
            case "dead":
                call(engine.core_died, text)

    orders.handler = carry_out
    await server.run_until_stopped()


def _read_exactly(size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = os.read(STDIN, size - len(data))
        if not chunk:
            raise SystemExit("octavo.entrypoints.openai.api_process is started by octavo serve")
        data += chunk
    return data


if __name__ == "__main__":
    sys.exit(main())
