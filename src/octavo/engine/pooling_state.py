"""PoolingState: one request on its way from tokens to its pooled result."""

from __future__ import annotations

import asyncio
from typing import Protocol

from octavo.engine.stats import FinishedRequest, IterationStats, RequestTimes
from octavo.types.engine_output import EngineCoreOutput, FinishReason
from octavo.types.errors import GenerationError
from octavo.types.outputs import RequestOutput
from octavo.types.pooling_outputs import PoolingOutput, PoolingRequestOutput
from octavo.types.pooling_params import TOKEN_ID_MASK
from octavo.types.request import EngineCoreRequest, FinishRequest

PooledOutput = PoolingRequestOutput[PoolingOutput]


class PoolingReader(Protocol):
    """Who waits for one request: gets a result or an error, once."""

    def put(self, output: PooledOutput) -> None:
        """The result."""
        ...

    def fail(self, error: Exception) -> None:
        """Why there is none."""
        ...


class PoolingFuture:
    """A PoolingReader on an event loop."""

    def __init__(self) -> None:
        self._future: asyncio.Future[PooledOutput] = asyncio.get_running_loop().create_future()

    def put(self, output: PooledOutput) -> None:
        """See PoolingReader."""
        if not self._future.done():
            self._future.set_result(output)

    def fail(self, error: Exception) -> None:
        """See PoolingReader."""
        if not self._future.done():
            self._future.set_exception(error)

    async def get(self) -> PooledOutput:
        """Wait for the result; raises the error."""
        return await self._future


class PoolingState:
    """What OutputProcessor keeps of the request; the counterpart of RequestState."""

    def __init__(self, external_id: str, request: EngineCoreRequest, reader: PoolingReader) -> None:
        self.external_id = external_id
        self.finish_reason: FinishReason | None = None
        self._request = request
        self._reader = reader
        self._times = RequestTimes(request.arrival_time)
        self._num_cached_tokens: int | None = None

    def update(
        self, output: EngineCoreOutput, timestamp: float, stats: IterationStats
    ) -> RequestOutput | None:
        """Take the core's news; the reader gets what comes of them."""
        if output.events:
            self._times.note_events(output.events)
        if output.num_cached_tokens is not None:
            self._num_cached_tokens = output.num_cached_tokens
        if output.finish_reason is None:
            return None
        self._times.finish()
        if output.pooled is None:
            self.finish_reason = FinishReason.ERROR
            self._reader.fail(GenerationError(str(output.stop_reason or "nothing was pooled")))
            return None
        self.finish_reason = FinishReason.STOP
        stats.num_prompt_tokens += self._request.num_prompt_tokens
        stats.num_cached_tokens += self._num_cached_tokens or 0
        self._reader.put(
            PoolingRequestOutput(
                request_id=self.external_id,
                outputs=PoolingOutput(output.pooled.array()),
                prompt_token_ids=[token & TOKEN_ID_MASK for token in self._request.token_ids],
                num_cached_tokens=self._num_cached_tokens,
                metrics=self._times.as_metrics(),
            )
        )
        return None

    def abort(self) -> RequestOutput | None:
        """End the request here."""
        return self.break_off("the request was aborted", FinishReason.ABORT)

    def break_off(
        self, error: str, reason: FinishReason = FinishReason.ERROR
    ) -> RequestOutput | None:
        """End the request because its news could not be processed."""
        self.finish_reason = reason
        self._times.finish()
        self._reader.fail(GenerationError(error))
        return None

    def deliver(self, output: RequestOutput) -> bool:
        """The reader has everything already."""
        return True

    def fail(self, error: Exception) -> None:
        """End the reader's wait with an error."""
        self._reader.fail(error)

    def finish_request(self) -> FinishRequest:
        """What to tell the core about an end that was decided here."""
        return FinishRequest(self._request.request_id, self.finish_reason or FinishReason.ABORT)

    def summary(self) -> FinishedRequest:
        """The numbers of an ended request."""
        cached, num_tokens = self._num_cached_tokens, self._request.num_prompt_tokens
        return FinishedRequest(
            reason=FinishReason.ABORT if self.finish_reason is None else self.finish_reason,
            num_prompt_tokens=num_tokens,
            num_generation_tokens=0,
            max_tokens=0,
            n=1,
            times=self._times,
            max_num_generation_tokens=0,
            num_computed_prompt_tokens=None if cached is None else num_tokens - cached,
        )
