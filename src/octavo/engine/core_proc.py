"""EngineCoreProc: an EngineCore in its own process, behind ZMQ sockets."""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import sys
import threading
from queue import SimpleQueue
from types import FrameType
from typing import Any

import msgspec
import zmq

from octavo.engine.core import EngineCore, build_core
from octavo.engine.launch import IDENTITY, LENGTH_BYTES, StartMessage
from octavo.engine.serial import Codec, Failure, FrameError, Heartbeat, MessageType, UtilityCall
from octavo.engine.watchdog import StallWatchdog
from octavo.types.engine_output import EngineCoreOutputs, UtilityResult
from octavo.utils import envs
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

LINGER_MS = 2000  # for the last message of a core that ends
PARENT_POLL_MS = 1000
PR_SET_PDEATHSIG = 1
STDIN = 0


class EngineCoreProc:
    """Feeds a core from an input thread, sends its outputs by an output thread.

    The thread that calls `run` steps the core, and sleeps on the inbox when there is no work.
    """

    def __init__(self, core: EngineCore, inputs: zmq.Socket[Any], outputs: zmq.Socket[Any]) -> None:
        self._core = core
        self._inputs = inputs
        self._outputs = outputs
        # SimpleQueue.put may be called from a signal handler.
        self._inbox: SimpleQueue[tuple[MessageType, Any]] = SimpleQueue()
        self._outbox: SimpleQueue[tuple[MessageType, Any] | None] = SimpleQueue()
        self._watchdog = StallWatchdog(envs.stall_timeout(), self._send_heartbeat)
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._read_inputs, name="octavo-core-in", daemon=True),
            threading.Thread(target=self._write_outputs, name="octavo-core-out", daemon=True),
        ]

    def request_shutdown(self) -> None:
        """Have `run` return after the current step; callable from a signal handler."""
        self._inbox.put((MessageType.SHUTDOWN, None))

    def run(self) -> None:
        """Step until a shutdown is asked for; an error of the core is sent on, then raised."""
        for thread in self._threads:
            thread.start()
        self._watchdog.start()
        try:
            while not self._stopping:
                self._take_messages(wait=not self._core.has_work())
                if not self._stopping and self._core.has_work():
                    self._step()
        except Exception as error:
            self._outbox.put((MessageType.DEAD, describe(error)))
            raise
        finally:
            self._watchdog.stop()
            self._outbox.put(None)
            self._threads[1].join()
            # Ends the input thread, which sees ContextTerminated.
            self._inputs.context.term()

    def _step(self) -> None:
        self._watchdog.begin_step()
        outputs = self._core.step()
        self._watchdog.end_step()
        for output in outputs.values():
            self._outbox.put((MessageType.OUTPUTS, output))

    def _take_messages(self, wait: bool) -> None:
        while wait or not self._inbox.empty():
            kind, payload = self._inbox.get()
            wait = False
            if kind is MessageType.ADD:
                for request in payload:
                    self._core.add_request(request)
            elif kind is MessageType.ABORT:
                self._core.abort_requests(payload)
            elif kind is MessageType.FINISH:
                self._core.finish_requests(payload)
            elif kind is MessageType.UTILITY:
                self._call(payload)
            elif kind is MessageType.SHUTDOWN:
                self._stopping = True

    def _call(self, call: UtilityCall) -> None:
        answer = UtilityResult(call_id=call.call_id)
        try:
            answer.result = self._core.call_utility(call.method, call.args)
            msgspec.msgpack.encode(answer)
        except Exception as error:
            answer = UtilityResult(call_id=call.call_id, failure=f"{type(error).__name__}: {error}")
        self._outbox.put((MessageType.OUTPUTS, EngineCoreOutputs(utility_result=answer)))

    def _send_heartbeat(self, heartbeat: Heartbeat) -> None:
        self._outbox.put((MessageType.HEARTBEAT, heartbeat))

    def _read_inputs(self) -> None:
        codec = Codec()
        try:
            while True:
                frames = self._inputs.recv_multipart()
                try:
                    self._inbox.put(codec.decode(frames))
                except FrameError as error:
                    logger.warning("dropped a message on the input socket: %s", error)
        except zmq.ContextTerminated:
            self._inputs.close(linger=0)

    def _write_outputs(self) -> None:
        codec = Codec()
        while (message := self._outbox.get()) is not None:
            try:
                frames = codec.encode(*message)
            except Exception as error:
                # Whoever waits for this message would wait for ever.
                logger.exception("a message to the front end can't be encoded")
                frames = codec.encode(MessageType.DEAD, describe(error))
                self.request_shutdown()
            self._outputs.send_multipart(frames)
        self._outputs.close(linger=LINGER_MS)


def describe(error: BaseException) -> Failure:
    """An exception as one line."""
    return Failure(type(error).__name__, " ".join(str(error).split()))


def main() -> int:
    """The entry of the process: read a StartMessage, build the core, say how it went, run."""
    # Ctrl-C goes to every process of the terminal; the front end decides what it means for us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start = _read_start()
    _follow_parent(start)
    context = zmq.Context()
    inputs = _connect(context, zmq.DEALER, start.input_address)
    outputs = _connect(context, zmq.PUSH, start.output_address)
    codec = Codec()
    for socket in (inputs, outputs):
        socket.send_multipart(codec.encode(MessageType.HELLO))
    try:
        core = build_core(start.config)
    except Exception as error:
        logger.debug("the engine core failed to start", exc_info=True)
        outputs.send_multipart(codec.encode(MessageType.FAILED, describe(error)))
        context.destroy(linger=LINGER_MS)
        return 1
    proc = EngineCoreProc(core, inputs, outputs)

    def stop(signum: int, frame: FrameType | None) -> None:
        logger.info("stopping at %s", signal.Signals(signum).name)
        proc.request_shutdown()

    signal.signal(signal.SIGTERM, stop)
    # What start-up made lives as long as the process: keep the collector from walking it.
    gc.collect()
    gc.freeze()
    outputs.send_multipart(codec.encode(MessageType.READY, core.facts))
    try:
        proc.run()
    except Exception:
        logger.exception("the engine core has died")
        return 1
    finally:
        core.shutdown()
    return 0


def _connect(context: zmq.Context[Any], kind: int, address: str) -> zmq.Socket[Any]:
    socket: zmq.Socket[Any] = context.socket(kind)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    if kind == zmq.DEALER:
        socket.setsockopt(zmq.IDENTITY, IDENTITY)
    socket.connect(address)
    return socket


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
