"""EngineCoreOutputs: what the engine core sends back to a front end after a step."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from octavo.types.pooling_outputs import PooledTensor
from octavo.types.stats import SchedulerStats


class FinishReason(enum.IntEnum):
    """Why a request ended; `str()` gives the OpenAI finish_reason."""

    STOP = 0
    LENGTH = 1
    ABORT = 2
    ERROR = 3
    REPETITION = 4  # the output has become a loop; see RepetitionDetectionParams

    def __str__(self) -> str:
        return self.name.lower()


class EventType(enum.IntEnum):
    """Moments in a request's life that latency metrics are made of."""

    QUEUED = 1
    SCHEDULED = 2
    PREEMPTED = 3


class EngineCoreEvent(msgspec.Struct, array_like=True):
    """An event and its time (seconds of time.monotonic() in the core)."""

    type: EventType
    timestamp: float


class TokenLogprobs(msgspec.Struct, array_like=True, omit_defaults=True):
    """Log-probabilities at one position: the chosen token, then the top ones.

    `token_ids[0]` is the sampled (or prompt) token with `ranks[0]` >= 1 its rank in the
    vocabulary; the rest are the top-k in order, ranks 1..k.
    """

    token_ids: list[int]
    logprobs: list[float]
    rank: int


class HiddenStatesChunk(msgspec.Struct, array_like=True):
    """Hidden states of consecutive positions, of the layers that the request named."""

    first_position: int
    states: PooledTensor  # [layers, positions, H]


class EngineCoreOutput(msgspec.Struct, array_like=True, omit_defaults=True):
    """News of one request: at least one of tokens, prompt logprobs, finish."""

    request_id: str
    new_token_ids: list[int] = []
    new_logprobs: list[TokenLogprobs] | None = None  # one per new token
    new_prompt_logprobs: list[TokenLogprobs | None] | None = None  # positions, in order
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None  # the stop token id, or the error's text for ERROR
    events: list[EngineCoreEvent] | None = None
    num_cached_tokens: int | None = None  # with the first output: prompt tokens found in the cache
    hidden_states: HiddenStatesChunk | None = None  # may hold positions told before
    pooled: PooledTensor | None = None  # of a request that is pooled, with its end
    error_param: str | None = None  # for ERROR: the field of the request at fault, if one is


class UtilityResult(msgspec.Struct, array_like=True, omit_defaults=True):
    """The answer to a utility call; `failure` is the error's text when it failed."""

    call_id: int
    result: Any = None
    failure: str | None = None


class EngineCoreOutputs(msgspec.Struct, array_like=True, omit_defaults=True):
    """Everything one front end gets from one step."""

    outputs: list[EngineCoreOutput] = []
    scheduler_stats: SchedulerStats | None = None
    timestamp: float = 0.0  # seconds of time.monotonic() in the core
    utility_result: UtilityResult | None = None
    engine_index: int = 0
