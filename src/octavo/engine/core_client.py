"""EngineCoreClient and its two forms for a core in its own process: MPClient and AsyncMPClient."""

from __future__ import annotations

import asyncio
import itertools
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from octavo.config.octavo_config import OctavoConfig
from octavo.engine.launch import CoreProcess
from octavo.engine.serial import EngineFacts, Failure, Heartbeat, MessageType, UtilityCall
from octavo.types.engine_output import EngineCoreOutputs, UtilityResult
from octavo.types.errors import EngineDeadError, EngineStalledError, OctavoError
from octavo.types.request import EngineCoreRequest, FinishRequest
from octavo.utils import envs
from octavo.utils.logging import get_logger
from octavo.utils.registry import Registry

logger = get_logger(__name__)


class EngineCoreClient(Protocol):
    """What the synchronous engine needs of a core; AsyncMPClient has the awaitable twin."""

    facts: EngineFacts

    def add_requests(self, requests: list[EngineCoreRequest]) -> None:
        """Queue requests."""

    def abort_requests(self, request_ids: list[str]) -> None:
        """Drop requests and whatever they would still produce; unknown ids are ignored."""

    def finish_requests(self, finishes: list[FinishRequest]) -> None:
        """Tell the core where requests ended (stop strings)."""

    def get_output(self) -> EngineCoreOutputs:
        """Wait for the news of a step; raises EngineDeadError."""

    def call_utility(self, method: str, *args: Any) -> Any:
        """Call one of EngineCore's utilities; raises OctavoError with the core's own message."""

    def shutdown(self) -> None:
        """End the core; safe to call twice."""


# By string: the in-process client brings the core and its executor into this process.
CLIENTS: Registry[Callable[[OctavoConfig], EngineCoreClient]] = Registry(
    "engine core client",
    {
        "mp": "octavo.engine.core_client:MPClient",
        "inproc": "octavo.engine.inproc_client:InprocClient",
    },
)


class CoreConnection(Protocol):
    """A core in another process, as CoreProcess and AttachedCore reach it."""

    facts: EngineFacts

    @property
    def pid(self) -> int:
        """The process that stands for the core."""

    @property
    def output_fd(self) -> int:
        """A descriptor that becomes readable when there may be messages."""

    def send(self, kind: MessageType, payload: Any = None) -> None:
        """Queue a message for the core."""

    def receive(self, timeout: float | None) -> tuple[MessageType, Any] | None:
        """The next message, or None after `timeout` seconds."""

    def stop(self) -> None:
        """End the connection, and the core if it is ours."""


class ProcessClient:
    """What both clients of a core process share: sending, and the core's health.

    Without a `core` it starts one.
    """

    def __init__(self, config: OctavoConfig, core: CoreConnection | None = None) -> None:
        self._core: CoreConnection = CoreProcess(config) if core is None else core
        self.facts = self._core.facts
        self.last_heard = time.monotonic()
        self._failure: str | None = None
        self._heartbeat = Heartbeat(0, 0.0, False)
        self._call_ids = itertools.count()
        self._finalizer = weakref.finalize(self, self._core.stop)

    @property
    def core_pid(self) -> int:
        """The process id of the core."""
        return self._core.pid

    @property
    def engine_dead(self) -> bool:
        """Whether the core is known to have died or was shut down."""
        return self._failure is not None

    def add_requests(self, requests: list[EngineCoreRequest]) -> None:
        """Queue requests; a list is admitted together."""
        self._send(MessageType.ADD, requests)

    def abort_requests(self, request_ids: list[str]) -> None:
        """Drop requests and whatever they would still produce; unknown ids are ignored."""
        self._send(MessageType.ABORT, request_ids)

    def finish_requests(self, finishes: list[FinishRequest]) -> None:
        """Tell the core where requests ended (stop strings)."""
        self._send(MessageType.FINISH, finishes)

    def cancel_requests(self, request_ids: list[str]) -> None:
        """Have every front end end what its clients know by these ids."""
        self._send(MessageType.CANCEL, request_ids)

    def check_health(self) -> None:
        """Raise EngineDeadError, or EngineStalledError while a step takes too long."""
        self._raise_if_dead()
        if self._heartbeat.stalled:
            raise EngineStalledError(
                f"the engine core has been in one step for {self._heartbeat.step_seconds:.0f} s; "
                f"the limit is OCTAVO_STALL_TIMEOUT_S={envs.stall_timeout():g}"
            )

    def shutdown(self) -> None:
        """End the core; safe to call twice."""
        self._failure = self._failure or "the engine was shut down"
        self._finalizer()

    def _send(self, kind: MessageType, payload: Any) -> None:
        self._raise_if_dead()
        self._core.send(kind, payload)

    def _send_call(self, method: str, args: tuple[Any, ...]) -> int:
        call_id = next(self._call_ids)
        self._send(MessageType.UTILITY, UtilityCall(call_id, method, list(args)))
        return call_id

    def _raise_if_dead(self) -> None:
        if self._failure is not None:
            raise EngineDeadError(self._failure)

    def _cancel(self, request_ids: list[str]) -> None:
        """Some front end wants these requests ended."""

    def _accept(self, kind: MessageType, payload: Any) -> EngineCoreOutputs | None:
        """Note what a message says about the core; the outputs, if it holds some."""
        self.last_heard = time.monotonic()
        if kind is MessageType.OUTPUTS:
            return payload  # type: ignore[no-any-return]
        if kind is MessageType.HEARTBEAT:
            self._heartbeat = payload
        elif kind is MessageType.CANCEL:
            self._cancel(payload)
        elif kind is MessageType.DEAD and self._failure is None:
            failure: Failure = payload
            self._failure = f"the engine core has died: {failure.kind}: {failure.message}"
            logger.error("%s", self._failure)
        return None


class MPClient(ProcessClient):
    """The synchronous client: blocks in `get_output`."""

    def __init__(self, config: OctavoConfig) -> None:
        super().__init__(config)
        self._backlog: deque[EngineCoreOutputs] = deque()

    def get_output(self) -> EngineCoreOutputs:
        """See EngineCoreClient."""
        if self._backlog:
            return self._backlog.popleft()
        return self._receive()

    def call_utility(self, method: str, *args: Any) -> Any:
        """See EngineCoreClient; outputs that arrive before the answer are kept."""
        call_id = self._send_call(method, args)
        while True:
            outputs = self._receive()
            answer = outputs.utility_result
            if answer is None:
                self._backlog.append(outputs)
            elif answer.call_id == call_id:
                return _result_of(answer)

    def _receive(self) -> EngineCoreOutputs:
        while True:
            self._raise_if_dead()
            message = self._core.receive(timeout=None)
            outputs = None if message is None else self._accept(*message)
            if outputs is not None:
                return outputs


class AsyncMPClient(ProcessClient):
    """The client of an event loop: the loop watches the output socket, nothing blocks."""

    def __init__(self, config: OctavoConfig, core: CoreConnection | None = None) -> None:
        super().__init__(config, core)
        self.on_cancel: Callable[[list[str]], None] = _ignore
        self._loop: asyncio.AbstractEventLoop | None = None
        self._outputs: asyncio.Queue[EngineCoreOutputs | None] = asyncio.Queue()
        self._calls: dict[int, asyncio.Future[Any]] = {}

    async def get_output(self) -> EngineCoreOutputs:
        """See EngineCoreClient."""
        self._attach()
        outputs = await self._outputs.get()
        if outputs is None:
            self._outputs.put_nowait(None)  # for the next caller
            self._raise_if_dead()
            raise EngineDeadError("the engine core has died")
        return outputs

    async def call_utility(self, method: str, *args: Any) -> Any:
        """See EngineCoreClient."""
        self._attach()
        call_id = self._send_call(method, args)
        future = asyncio.get_running_loop().create_future()
        self._calls[call_id] = future
        try:
            return await future
        finally:
            del self._calls[call_id]

    def shutdown(self) -> None:
        """See EngineCoreClient."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._core.output_fd)
        self._loop = None
        super().shutdown()
        self._end()

    def _cancel(self, request_ids: list[str]) -> None:
        self.on_cancel(request_ids)

    def _attach(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is loop or self._failure is not None:
            return
        if self._loop is not None:  # a queue belongs to the loop it was first waited on
            left, self._outputs = self._outputs, asyncio.Queue()
            while not left.empty():
                self._outputs.put_nowait(left.get_nowait())
        self._loop = loop
        loop.add_reader(self._core.output_fd, self._drain)
        # The descriptor signals changes only: what came before the reader was added is read now.
        loop.call_soon(self._drain)

    def _drain(self) -> None:
        while self._loop is not None and (message := self._core.receive(timeout=0)) is not None:
            outputs = self._accept(*message)
            if outputs is not None and outputs.utility_result is not None:
                self._answer(outputs.utility_result)
            elif outputs is not None:
                self._outputs.put_nowait(outputs)
        if self._failure is not None:
            self._end()

    def _answer(self, answer: UtilityResult) -> None:
        future = self._calls.get(answer.call_id)
        if future is None or future.done():
            return
        try:
            future.set_result(_result_of(answer))
        except OctavoError as error:
            future.set_exception(error)

    def _end(self) -> None:
        self._outputs.put_nowait(None)
        for future in self._calls.values():
            if not future.done():
                future.set_exception(EngineDeadError(self._failure))


def _ignore(request_ids: list[str]) -> None:
    """For a client without requests."""


def _result_of(answer: UtilityResult) -> Any:
    if answer.failure is not None:
        raise OctavoError(answer.failure)
    return answer.result
