"""The messages between a front end and an engine core: one type byte, one msgpack payload."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import msgspec

from octavo.types.engine_output import EngineCoreOutputs
from octavo.types.request import EngineCoreRequest, FinishRequest


class FrameError(Exception):
    """A message that is not one of ours; the receiver drops it."""


class MessageType(enum.Enum):
    """The first frame of every message."""

    # front end -> core
    ADD = b"\x00"
    ABORT = b"\x01"
    FINISH = b"\x02"
    UTILITY = b"\x03"
    SHUTDOWN = b"\x04"
    # front end -> core -> every front end: requests to end, by the ids that clients know
    CANCEL = b"\x05"
    # core -> front end, on the output socket; HELLO also on the input socket, where it makes the
    # core's identity routable
    HELLO = b"\x10"
    READY = b"\x11"
    FAILED = b"\x12"
    OUTPUTS = b"\x13"
    HEARTBEAT = b"\x14"
    DEAD = b"\x15"


class EngineFacts(msgspec.Struct, frozen=True):
    """What a front end learns from a core that is ready."""

    num_blocks: int  # the null block included
    block_size: int  # tokens
    kv_cache_bytes: int
    max_model_len: int
    min_reusable_prefix: int = 0  # tokens; 0 with prefix caching off
    startup: dict[str, float] = {}  # seconds of each phase, which sum to the wall time


class Failure(msgspec.Struct, frozen=True):
    """Why a core did not start or has died."""

    kind: str  # the exception's class
    message: str  # one line: cause and remedy


class UtilityCall(msgspec.Struct, array_like=True):
    """A call of one of EngineCore's utilities; the answer is a UtilityResult."""

    call_id: int
    method: str
    args: list[Any] = []


class Heartbeat(msgspec.Struct, array_like=True):
    """Sent while a step runs, so that silence means a core that can't even run a thread."""

    num_steps: int  # steps begun since the start
    step_seconds: float  # age of the current step, 0 between steps
    stalled: bool  # whether that is above the stall limit


_PAYLOADS: dict[MessageType, Any] = {
    MessageType.ADD: list[EngineCoreRequest],
    MessageType.ABORT: list[str],
    MessageType.FINISH: list[FinishRequest],
    MessageType.UTILITY: UtilityCall,
    MessageType.SHUTDOWN: None,
    MessageType.CANCEL: list[str],
    MessageType.HELLO: None,
    MessageType.READY: EngineFacts,
    MessageType.FAILED: Failure,
    MessageType.OUTPUTS: EngineCoreOutputs,
    MessageType.HEARTBEAT: Heartbeat,
    MessageType.DEAD: Failure,
}


class Codec:
    """Encodes and decodes messages; one per thread."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoders = {
            kind.value: (kind, msgspec.msgpack.Decoder(payload))
            for kind, payload in _PAYLOADS.items()
        }

    def encode(self, kind: MessageType, payload: Any = None) -> list[bytes]:
        """The frames of a message."""
        return [kind.value, self._encoder.encode(payload)]

    def decode(self, frames: Sequence[bytes]) -> tuple[MessageType, Any]:
        """The type and the payload of a message; raises FrameError for anything else."""
        if len(frames) != 2:
            raise FrameError(f"{len(frames)} frames instead of 2")
        entry = self._decoders.get(frames[0])
        if entry is None:
            raise FrameError(f"unknown message type {frames[0][:8]!r}")
        kind, decoder = entry
        try:
            return kind, decoder.decode(frames[1])
        # Besides msgspec's errors: a struct's own checks, text that is not UTF-8, deep nesting.
        except Exception as error:
            raise FrameError(f"bad {kind.name} payload: {error}") from error
