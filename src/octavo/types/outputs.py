"""RequestOutput: what users of LLM and AsyncLLM get."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass(slots=True)
class Logprob:
    """One candidate token at one position."""

    logprob: float
    rank: int  # 1 is the most likely
    decoded_token: str | None = None


# One entry per position: token id -> Logprob. The sampled token is always present.
PositionLogprobs = dict[int, Logprob]


@dataclass(slots=True)
class HiddenStates:
    """Hidden states of consecutive positions of prompt and output, from `first_position` on.

    The last output token has none, for it was never an input.
    """

    layers: list[int]  # as the request named them
    first_position: int
    states: npt.NDArray[np.float32]  # [layers, positions, H]


@dataclass(slots=True)
class CompletionOutput:
    """One of the n sequences of a request."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[PositionLogprobs] | None = None
    finish_reason: str | None = None  # "stop", "length", "abort", "error", "repetition"
    stop_reason: int | str | None = None  # the stop string or stop token id that ended it
    hidden_states: HiddenStates | None = None  # with the end, if the request asked for them

    @property
    def finished(self) -> bool:
        """Whether this sequence has ended."""
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestMetrics:
    """Times of one request; seconds, from arrival unless said otherwise."""

    arrival_time: float = 0.0  # time.time()
    queue_time: float | None = None
    first_token_latency: float | None = None
    e2e_latency: float | None = None


@dataclass(slots=True)
class RequestOutput:
    """The state, or the news, of one request; see RequestOutputKind."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    prompt_logprobs: list[PositionLogprobs | None] | None = None  # first entry None
    num_cached_tokens: int | None = None
    metrics: RequestMetrics = field(default_factory=RequestMetrics)
    error: str | None = None  # why it ended with finish_reason "error"
    error_param: str | None = None  # the field of the request at fault, if one is

    def add(self, new: RequestOutput, aggregate: bool) -> None:
        """Merge a newer output into this one (a reader slower than the producer).

        With `aggregate` (DELTA) texts and tokens are appended, else replaced.
        """
        self.finished |= new.finished
        self.error = new.error or self.error
        self.error_param = new.error_param or self.error_param
        if new.prompt_logprobs is not None:
            self.prompt_logprobs = new.prompt_logprobs
        if new.num_cached_tokens is not None:
            self.num_cached_tokens = new.num_cached_tokens
        self.metrics = new.metrics
        by_index = {output.index: position for position, output in enumerate(self.outputs)}
        for output in new.outputs:
            position = by_index.get(output.index)
            if position is None:
                self.outputs.append(output)
            elif not aggregate:
                self.outputs[position] = output
            else:
                old = self.outputs[position]
                old.text += output.text
                old.token_ids.extend(output.token_ids)
                if output.logprobs:
                    old.logprobs = (old.logprobs or []) + output.logprobs
                old.cumulative_logprob = output.cumulative_logprob
                old.finish_reason = output.finish_reason
                old.stop_reason = output.stop_reason
