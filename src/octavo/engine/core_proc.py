"""EngineCoreProc: an EngineCore in its own process, behind ZMQ sockets."""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import sys
import threading
import time
from queue import SimpleQueue
from types import FrameType
from typing import Any

import msgspec
import zmq

from octavo.engine.core import EngineCore, build_core
from octavo.engine.core_link import IDENTITY, ClientAddress, open_socket
from octavo.engine.launch import LENGTH_BYTES, StartMessage
from octavo.engine.serial import Codec, Failure, FrameError, Heartbeat, MessageType, UtilityCall
from octavo.engine.watchdog import StallWatchdog
from octavo.types.engine_output import EngineCoreOutputs, UtilityResult
from octavo.utils import envs
from octavo.utils.logging import get_logger
from octavo.utils.phases import Phases, process_start

logger = get_logger(__name__)

LINGER_MS = 2000  # for the last message of a core that ends
PARENT_POLL_MS = 1000
PR_SET_PDEATHSIG = 1
STDIN = 0
FIRST = 0  # index of the front end that started the core


class EngineCoreProc:
    """Feeds a core from an input thread per front end, sends its outputs by an output thread.

    The thread that calls `run` steps the core, and sleeps on the inbox when there is no work.
    `clients` are the sockets (inputs, outputs) of the front ends by their index.
    """

    def __init__(
        self, core: EngineCore, clients: list[tuple[zmq.Socket[Any], zmq.Socket[Any]]]
    ) -> None:
        self._core = core
        self._clients = clients
        # SimpleQueue.put may be called from a signal handler.
        # A kind of None: nothing but a reason to look for work.
        self._inbox: SimpleQueue[tuple[int, MessageType | None, Any]] = SimpleQueue()
        # An index of None: for every front end.
        self._outbox: SimpleQueue[tuple[int | None, MessageType, Any] | None] = SimpleQueue()
        self._watchdog = StallWatchdog(envs.stall_timeout(), self._send_heartbeat)
        self._stopping = False
        self._writer = threading.Thread(
            target=self._write_outputs, name="octavo-core-out", daemon=True
        )
        self._readers = [
            threading.Thread(
                target=self._read_inputs, args=(index,), name=f"octavo-core-in-{index}", daemon=True
            )
            for index in range(len(clients))
        ]

    def request_shutdown(self) -> None:
        """Have `run` return after the current step; callable from a signal handler."""
        self._inbox.put((FIRST, MessageType.SHUTDOWN, None))

    def run(self) -> None:
        """Step until a shutdown is asked for; an error of the core is sent on, then raised."""
        for thread in (self._writer, *self._readers):
            thread.start()
        self._watchdog.start()
        self._core.wake_by(lambda: self._inbox.put((FIRST, None, None)))
        try:
            while not self._stopping:
                self._take_messages(wait=not self._core.has_work())
                if not self._stopping and self._core.has_work():
                    self._step()
        except Exception as error:
            self._outbox.put((None, MessageType.DEAD, describe(error)))
            raise
        finally:
            self._watchdog.stop()
            self._outbox.put(None)
            self._writer.join()
            # Ends the input threads, which see ContextTerminated.
            self._clients[FIRST][0].context.term()

    def _step(self) -> None:
        self._watchdog.begin_step()
        outputs = self._core.step()
        self._watchdog.end_step()
        for index, output in outputs.items():
            self._outbox.put((index, MessageType.OUTPUTS, output))

    def _take_messages(self, wait: bool) -> None:
        while wait or not self._inbox.empty():
            index, kind, payload = self._inbox.get()
            wait = False
            if kind is MessageType.ADD:
                for request in payload:
                    request.client_index = index
                    self._core.add_request(request)
            elif kind is MessageType.ABORT:
                self._core.abort_requests(payload)
            elif kind is MessageType.FINISH:
                self._core.finish_requests(payload)
            elif kind is MessageType.UTILITY:
                self._call(index, payload)
            elif kind is MessageType.CANCEL:
                self._outbox.put((None, MessageType.CANCEL, payload))
            elif kind is MessageType.SHUTDOWN and index == FIRST:
                self._stopping = True

    def _call(self, index: int, call: UtilityCall) -> None:
        answer = UtilityResult(call_id=call.call_id)
        try:
            answer.result = self._core.call_utility(call.method, call.args)
            msgspec.msgpack.encode(answer)
        except Exception as error:
            answer = UtilityResult(call_id=call.call_id, failure=f"{type(error).__name__}: {error}")
        self._outbox.put((index, MessageType.OUTPUTS, EngineCoreOutputs(utility_result=answer)))

    def _send_heartbeat(self, heartbeat: Heartbeat) -> None:
        self._outbox.put((None, MessageType.HEARTBEAT, heartbeat))

    def _read_inputs(self, index: int) -> None:
        codec = Codec()
        inputs = self._clients[index][0]
        try:
            while True:
                frames = inputs.recv_multipart()
                try:
                    self._inbox.put((index, *codec.decode(frames)))
                except FrameError as error:
                    logger.warning("dropped a message on the input socket: %s", error)
        except zmq.ContextTerminated:
            inputs.close(linger=0)

    def _write_outputs(self) -> None:
        codec = Codec()
        outputs = [sockets[1] for sockets in self._clients]
        while (message := self._outbox.get()) is not None:
            index, kind, payload = message
            try:
                frames = codec.encode(kind, payload)
            except Exception as error:
                # Whoever waits for this message would wait for ever.
                logger.exception("a message to the front end can't be encoded")
                frames, index = codec.encode(MessageType.DEAD, describe(error)), None
                self.request_shutdown()
            for socket in outputs if index is None else outputs[index : index + 1]:
                socket.send_multipart(frames)
        for socket in outputs:
            socket.close(linger=LINGER_MS)


def describe(error: BaseException) -> Failure:
    """An exception as one line."""
    return Failure(type(error).__name__, " ".join(str(error).split()))


def main() -> int:
    """The entry of the process: read a StartMessage, build the core, say how it went, run."""
    # Ctrl-C goes to every process of the terminal; the front end decides what it means for us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The start makes a great many objects that stay; looking for garbage among them is in vain.
    gc.disable()
    phases = _phases_so_far(start := _read_start())
    _follow_parent(start)
    context = zmq.Context()
    clients = [_connect(context, address) for address in start.clients]
    codec = Codec()
    for sockets in clients:
        for socket in sockets:
            socket.send_multipart(codec.encode(MessageType.HELLO))
    try:
        core = build_core(start.config, phases)
    except Exception as error:
        logger.debug("the engine core failed to start", exc_info=True)
        clients[FIRST][1].send_multipart(codec.encode(MessageType.FAILED, describe(error)))
        context.destroy(linger=LINGER_MS)
        return 1
    proc = EngineCoreProc(core, clients)

    def stop(signum: int, frame: FrameType | None) -> None:
        logger.info("stopping at %s", signal.Signals(signum).name)
        proc.request_shutdown()

    signal.signal(signal.SIGTERM, stop)
    # What start-up made lives as long as the process: keep the collector from walking it.
    gc.collect()
    gc.freeze()
    gc.enable()
    for _, outputs in clients:
        outputs.send_multipart(codec.encode(MessageType.READY, core.facts))
    try:
        proc.run()
    except Exception:
        logger.exception("the engine core has died")
        return 1
    finally:
        core.shutdown()
    return 0


def _connect(
    context: zmq.Context[Any], address: ClientAddress
) -> tuple[zmq.Socket[Any], zmq.Socket[Any]]:
    """The sockets (inputs, outputs) of one front end."""
    inputs = open_socket(context, zmq.DEALER)
    inputs.setsockopt(zmq.IDENTITY, IDENTITY)
    inputs.connect(address.input)
    outputs = open_socket(context, zmq.PUSH)
    outputs.connect(address.output)
    return inputs, outputs


def _phases_so_far(start: StartMessage) -> Phases:
    """What it took to get to `main`."""
    phases = Phases(began=start.spawned_at)
    born = process_start()
    phases.add({"process spawn": born - start.spawned_at, "imports": time.monotonic() - born})
    return phases


def _read_start() -> StartMessage:
    size = int.from_bytes(_read_exactly(LENGTH_BYTES), "little")
    return msgspec.msgpack.decode(_read_exactly(size), type=StartMessage)


def _read_exactly(size: int) -> bytes:
    # Unbuffered: a thread will sit in this descriptor until the end.
    data = b""
    while len(data) < size:
        chunk = os.read(STDIN, size - len(data))
        if not chunk:
            raise SystemExit("octavo.engine.core_proc is started by octavo, not by hand")
        data += chunk
    return data


def _follow_parent(start: StartMessage) -> None:
    if start.die_with_parent and sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(
        target=_exit_after_parent, args=(start.parent_pid,), name="octavo-parent-watch", daemon=True
    ).start()


def _exit_after_parent(parent_pid: int) -> None:
    # Our standard input ends with the parent, unless a process forked from it still holds the
    # other end; then our parent's id changes.
    poller = select.poll()
    poller.register(STDIN, select.POLLHUP)
    while os.getppid() == parent_pid and not poller.poll(PARENT_POLL_MS):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
