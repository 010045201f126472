"""CoreLink: one front end's pair of sockets with an engine core, whoever started the core."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import zmq

from octavo.engine.serial import Codec, EngineFacts, Failure, FrameError, MessageType
from octavo.types.errors import EngineDeadError, EngineStartError
from octavo.utils import envs
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

IDENTITY = b"core-0"  # of the core's DEALER sockets
START_POLL = 0.1  # seconds between two looks at a starting core
END_SECONDS = 5.0  # that ZeroMQ is waited for at the end


class ClientAddress(msgspec.Struct, frozen=True):
    """Where one front end binds and the core connects."""

    input: str
    output: str

    @classmethod
    def within(cls, directory: str, name: str = "") -> ClientAddress:
        """Two Unix sockets in a directory that only our user may enter."""
        return cls(f"ipc://{directory}/in{name}", f"ipc://{directory}/out{name}")


class CoreLink:
    """Messages to a core and from it. `send` and `receive` belong to one thread or event loop."""

    def __init__(self) -> None:
        self._codec = Codec()
        self._context = zmq.Context()
        self._inputs = open_socket(self._context, zmq.ROUTER)
        self._inputs.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._outputs = open_socket(self._context, zmq.PULL)
        self._obituary = f"inproc://obituary-{id(self)}"
        self._outputs.bind(self._obituary)
        self._began = time.monotonic()

    @property
    def output_fd(self) -> int:
        """A descriptor that becomes readable when there may be messages; edge-triggered."""
        return int(self._outputs.getsockopt(zmq.FD))

    def send(self, kind: MessageType, payload: Any = None) -> None:
        """Queue a message for the core; never blocks. Raises EngineDeadError without a core."""
        try:
            self._inputs.send_multipart([IDENTITY, *self._codec.encode(kind, payload)])
        except zmq.ZMQError as error:
            raise EngineDeadError(f"the engine core can't be reached: {error}") from None

    def receive(self, timeout: float | None) -> tuple[MessageType, Any] | None:
        """The next message, or None after `timeout` seconds (None: wait for ever)."""
        wait = None if timeout is None else int(timeout * 1000)
        while self._outputs.poll(wait):
            try:
                return self._codec.decode(self._outputs.recv_multipart())
            except FrameError as error:
                logger.warning("dropped a message on the output socket: %s", error)
        return None

    def tell_death(self, failure: Failure) -> None:
        """Have `receive` return a DEAD message; callable from any thread."""
        notice = open_socket(self._context, zmq.PUSH)
        notice.connect(self._obituary)
        notice.send_multipart(Codec().encode(MessageType.DEAD, failure))
        notice.close()

    def _disconnect(self) -> None:
        """Close the sockets and drop what they still hold; safe to call twice.

        ZeroMQ then waits until its own threads have let go of them. That has been seen to last for
        ever after a core was killed, so nobody waits for it longer than a moment.
        """
        for socket in (self._inputs, self._outputs):
            socket.close(linger=0)
        ending = threading.Thread(target=self._context.term, name="octavo-zmq-end", daemon=True)
        ending.start()
        ending.join(END_SECONDS)
        if ending.is_alive():
            logger.warning(
                "ZeroMQ has not closed the sockets after %g s; leaving them", END_SECONDS
            )

    def _bind(self, address: ClientAddress) -> None:
        self._inputs.bind(address.input)
        self._outputs.bind(address.output)

    def _wait_until_connected(self, check: Callable[[], None]) -> None:
        """Wait for HELLO on both sockets, which the core sends before it loads anything.

        `check` is called again and again; it raises when there is nothing to wait for any more.
        """
        self._wait_for(MessageType.HELLO, check)
        while not self._inputs.poll(int(START_POLL * 1000)):
            check()
        self._inputs.recv_multipart()

    def _wait_for(self, wanted: MessageType, check: Callable[[], None]) -> Any:
        """The payload of the next message of this type; others are passed over."""
        while True:
            message = self.receive(START_POLL)
            if message is None:
                check()
            elif message[0] is wanted:
                return message[1]


class AttachedCore(CoreLink):
    """A core that another process has started and will end.

    Blocks until the core is ready; the process that started us tells, or ends us, if it fails.
    """

    def __init__(self, address: ClientAddress) -> None:
        super().__init__()
        self._bind(address)
        self._wait_until_connected(self._check_time)
        self.facts: EngineFacts = self._wait_for(MessageType.READY, self._check_time)

    @property
    def pid(self) -> int:
        """Of the process that has started the core: its process is not known here."""
        return os.getppid()

    def stop(self) -> None:
        """Close the sockets; safe to call twice."""
        self._disconnect()

    def _check_time(self) -> None:
        limit = envs.engine_ready_timeout()
        if time.monotonic() > self._began + limit:
            raise EngineStartError(f"the engine core was not ready after {limit:g} s")


def open_socket(context: zmq.Context[Any], kind: int) -> zmq.Socket[Any]:
    """A socket without high-water marks: to drop or block would lose or stall a request."""
    socket: zmq.Socket[Any] = context.socket(kind)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    return socket
