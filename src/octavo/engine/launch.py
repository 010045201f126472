"""CoreProcess: start an engine core in its own process, talk to it, watch it and stop it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import zmq

from octavo.config.octavo_config import OctavoConfig
from octavo.engine.core_link import START_POLL, ClientAddress, CoreLink
from octavo.engine.serial import EngineFacts, Failure, MessageType
from octavo.types.errors import (
    CheckpointError,
    ConfigError,
    EngineDeadError,
    EngineStartError,
    OctavoError,
)
from octavo.utils import envs
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

LENGTH_BYTES = 8  # of the prefix of the StartMessage on stdin
MAX_SOCKET_DIR = 80  # characters; a Unix socket path holds 107
GRACE = 5.0  # seconds for a core to end by itself
KILL_AFTER = 2.0  # seconds between SIGTERM and SIGKILL

_START_ERRORS: dict[str, type[OctavoError]] = {
    "ConfigError": ConfigError,
    "CheckpointError": CheckpointError,
}


class StartMessage(msgspec.Struct):
    """What a core process reads from its standard input, which stays open while we live."""

    config: OctavoConfig
    clients: list[ClientAddress]  # front ends by their index; the first one started the core
    spawned_at: float  # time.monotonic(), which all processes of a machine share
    parent_pid: int
    # PR_SET_PDEATHSIG acts when the *thread* that started the child ends, so it can be asked for
    # only where that thread is the main one.
    die_with_parent: bool


class CoreProcess(CoreLink):
    """A running core. `send` and `receive` belong to one thread (or one event loop).

    Raises the core's own ConfigError or CheckpointError, or EngineStartError, when it does not
    become ready. The socket files live in a private directory and only until both sides are
    connected, before the model is loaded, so that no later death can leave them behind.
    `further` are the addresses of other processes' front ends, which have the indexes from 1 on.
    """

    def __init__(self, config: OctavoConfig, further: Sequence[ClientAddress] = ()) -> None:
        super().__init__()
        self._owner = os.getpid()
        self._stopping = False
        self._watcher = threading.Thread(target=self._watch, name="octavo-core-watch", daemon=True)
        directory = socket_directory()
        try:
            self._bind(ClientAddress.within(directory))
            self._process = _spawn(config, directory, further)
            try:
                self._wait_until_connected(self._check_start)
                shutil.rmtree(directory, ignore_errors=True)
                self.facts = self._wait_until_ready()
            except BaseException:
                self._process.kill()
                self._process.wait()
                self._close()
                raise
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        """The process id of the core."""
        return self._process.pid

    def stop(self) -> None:
        """End the process and close the sockets; safe to call twice."""
        # A process forked from ours inherits this object, but the core is not its to end.
        if self._stopping or os.getpid() != self._owner:
            return
        self._stopping = True
        with contextlib.suppress(EngineDeadError):
            self.send(MessageType.SHUTDOWN)
        self._watcher.join(GRACE)
        if self._watcher.is_alive():
            logger.warning("the engine core did not stop within %g s; ending it", GRACE)
            self._process.terminate()
            self._watcher.join(KILL_AFTER)
            self._process.kill()
            self._watcher.join()
        self._close()

    def _close(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._disconnect()

    def _wait_until_ready(self) -> EngineFacts:
        facts: EngineFacts = self._wait_for(MessageType.READY, self._check_start)
        return facts

    def _wait_for(self, wanted: MessageType, check: Callable[[], None]) -> Any:
        while True:
            exited = self._process.poll() is not None
            message = self.receive(0 if exited else START_POLL)
            if message is None:
                self._check_start()
                continue
            kind, payload = message
            if kind is MessageType.FAILED:
                self._process.wait()
                raise _start_error(payload)
            if kind is wanted:
                return payload

    def _check_start(self) -> None:
        """Raise EngineStartError if nothing is to be expected any more."""
        if self._process.poll() is not None:
            raise EngineStartError(
                f"the engine core {_describe_exit(self._process.returncode)} while starting"
            )
        limit = envs.engine_ready_timeout()
        if time.monotonic() > self._began + limit:
            raise EngineStartError(
                f"the engine core was not ready after {limit:g} s; if the model is only slow to "
                "load, raise OCTAVO_ENGINE_READY_TIMEOUT_S"
            )

    def _watch(self) -> None:
        code = self._process.wait()
        if self._stopping:
            return
        failure = Failure("ProcessExit", f"its process {_describe_exit(code)}")
        with contextlib.suppress(zmq.ZMQError):
            self.tell_death(failure)


def socket_directory() -> str:
    """A new directory for socket files."""
    # mkdtemp makes the directory with mode 0700: only our user can connect.
    path = tempfile.mkdtemp(prefix="octavo-")
    if len(path) > MAX_SOCKET_DIR:
        os.rmdir(path)
        path = tempfile.mkdtemp(prefix="octavo-", dir="/tmp")
    return path


def _spawn(
    config: OctavoConfig, directory: str, further: Sequence[ClientAddress] = ()
) -> subprocess.Popen[bytes]:
    spawned_at = time.monotonic()
    # The child inherits this mask: Ctrl-C reaches it too, and it ends when we say so.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "octavo.engine.core_proc"],
            stdin=subprocess.PIPE,
            # -P keeps the working directory off the child's path; PYTHONPATH gives it exactly
            # ours, so that plug-ins named "module:Class" are found in the core as they are here.
            env=envs.child_environment({"PYTHONPATH": envs.python_path()}),
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    start = msgspec.msgpack.encode(
        StartMessage(
            config=config,
            clients=[ClientAddress.within(directory), *further],
            parent_pid=os.getpid(),
            spawned_at=spawned_at,
            die_with_parent=threading.current_thread() is threading.main_thread(),
        )
    )
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(len(start).to_bytes(LENGTH_BYTES, "little") + start)
            process.stdin.flush()
    return process


def _start_error(failure: Failure) -> OctavoError:
    kind = _START_ERRORS.get(failure.kind)
    if kind is not None:
        return kind(failure.message)
    return EngineStartError(
        f"the engine core could not start: {failure.kind}: {failure.message} "
        "(OCTAVO_LOGGING_LEVEL=DEBUG shows where)"
    )


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    name = signal.Signals(-code).name
    hint = "; often that is the kernel, out of memory" if -code == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"
