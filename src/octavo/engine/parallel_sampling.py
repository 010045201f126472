"""n > 1: one request becomes n children with their own seeds; their outputs are gathered."""

from __future__ import annotations

import hashlib

import msgspec

from octavo.types.outputs import CompletionOutput, PositionLogprobs, RequestOutput
from octavo.types.request import EngineCoreRequest
from octavo.types.sampling_params import MAX_SEED, RequestOutputKind


def derive_seed(seed: int, index: int) -> int:
    """The seed of child `index`: child 0 keeps the request's own, so n = 1 and n > 1 agree on it.

    Always in [0, 2**63).
    """
    if index == 0:
        return seed & MAX_SEED
    digest = hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") & MAX_SEED


def child_requests(request: EngineCoreRequest) -> list[EngineCoreRequest]:
    """The n sequences of a request, in order; [request] itself for n = 1.

    Prompt logprobs are the same for every child, so only the first computes them.
    """
    params = request.sampling_params
    if params.n == 1:
        return [request]
    first = msgspec.structs.replace(params, n=1)
    others = msgspec.structs.replace(params, n=1, prompt_logprobs=None)
    return [
        msgspec.structs.replace(
            request,
            request_id=f"{request.request_id}-{index}",
            sampling_params=others if index else first,
            seed=derive_seed(request.seed, index),
        )
        for index in range(params.n)
    ]


class ParentRequest:
    """Makes one request's outputs from those of its children."""

    def __init__(self, n: int, kind: RequestOutputKind) -> None:
        self.n = n
        self._kind = kind
        self._latest: dict[int, CompletionOutput] = {}
        self._num_finished = 0
        # Of the first child, which computes the prompt for all.
        self._prompt_logprobs: list[PositionLogprobs | None] | None = None
        self._num_cached_tokens: int | None = None
        self._error: str | None = None  # the first one
        self._error_param: str | None = None  # of the first one
        self._num_tokens: list[int] = []  # of the children that have ended

    def note_end(self, num_tokens: int) -> int | None:
        """A child has ended with so many tokens; those of the longest, once all have."""
        self._num_tokens.append(num_tokens)
        return max(self._num_tokens) if len(self._num_tokens) == self.n else None

    def gather(self, output: RequestOutput) -> bool:
        """Turn one child's output into the request's; False: nothing is to be shown yet.

        DELTA: the child's news. CUMULATIVE: the latest of every child heard of. FINAL_ONLY: all
        of them, at the end. The request is finished when every child is.
        """
        completion = output.outputs[0]
        self._num_finished += completion.finished
        output.finished = self._num_finished == self.n
        if self._error is None:
            self._error, self._error_param = output.error, output.error_param
        output.error, output.error_param = self._error, self._error_param
        if completion.index == 0:
            self._prompt_logprobs = output.prompt_logprobs
            self._num_cached_tokens = output.num_cached_tokens
        output.num_cached_tokens = self._num_cached_tokens
        if self._kind is RequestOutputKind.DELTA:
            return True
        output.prompt_logprobs = self._prompt_logprobs
        self._latest[completion.index] = completion
        output.outputs = [self._latest[index] for index in sorted(self._latest)]
        return output.finished or self._kind is RequestOutputKind.CUMULATIVE
