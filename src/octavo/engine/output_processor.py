"""OutputProcessor: EngineCoreOutputs -> RequestOutputs, one state per sequence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from octavo.engine.collector import RequestOutputCollector
from octavo.engine.parallel_sampling import ParentRequest, child_requests
from octavo.engine.pooling_state import PoolingReader, PoolingState
from octavo.engine.request_state import RequestState
from octavo.engine.stats import IterationStats
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.engine_output import EngineCoreOutput
from octavo.types.errors import EngineDeadError
from octavo.types.outputs import RequestOutput
from octavo.types.request import EngineCoreRequest, FinishRequest
from octavo.utils.logging import get_logger

logger = get_logger(__name__)


@dataclass(slots=True)
class ProcessedOutputs:
    """What came of some EngineCoreOutputs."""

    # Outputs of requests without a collector.
    request_outputs: list[RequestOutput] = field(default_factory=list)
    # Ends that the core does not know yet.
    finishes: list[FinishRequest] = field(default_factory=list)


class OutputProcessor:
    """The sequences in flight of one front end.

    Requests are known to callers by their own id, which need not be unique; inside, each
    sequence has an id of its own.
    """

    def __init__(self, tokenizer: Tokenizer | None, stream_interval: int) -> None:
        self._tokenizer = tokenizer
        self._stream_interval = stream_interval
        self._stats = IterationStats()
        self._states: dict[str, RequestState | PoolingState] = {}
        self._internal_ids: dict[str, list[str]] = {}  # external id -> ids of its sequences

    @property
    def num_unfinished(self) -> int:
        """Sequences in flight."""
        return len(self._states)

    def add_request(
        self,
        external_id: str,
        request: EngineCoreRequest,
        prompt: str | None,
        collector: RequestOutputCollector | None = None,
    ) -> list[EngineCoreRequest]:
        """Make the states of a request's sequences; returns what to send to the core."""
        children = child_requests(request)
        params = request.sampling_params
        parent = ParentRequest(params.n, params.output_kind) if params.n > 1 else None
        states = [
            RequestState(
                external_id,
                child,
                prompt,
                index=index,
                parent=parent,
                collector=collector,
                tokenizer=self._tokenizer,
                stream_interval=self._stream_interval,
            )
            for index, child in enumerate(children)
        ]
        for child, state in zip(children, states, strict=True):
            self._states[child.request_id] = state
        ids = self._internal_ids.setdefault(external_id, [])
        ids.extend(child.request_id for child in children)
        return children

    def add_pooling_request(
        self, external_id: str, request: EngineCoreRequest, reader: PoolingReader
    ) -> None:
        """Make the state of a request whose result goes to `reader`."""
        self._states[request.request_id] = PoolingState(external_id, request, reader)
        self._internal_ids.setdefault(external_id, []).append(request.request_id)

    def internal_ids(self, external_id: str) -> list[str]:
        """The sequences of every request that goes by this id."""
        return list(self._internal_ids.get(external_id, ()))

    def drop(self, internal_ids: Iterable[str]) -> list[str]:
        """Forget sequences whose reader has left; returns those that were still in flight."""
        dropped = []
        for name in internal_ids:
            state = self._forget(name)
            if state is not None:
                state.abort()
                self._stats.finished.append(state.summary())
                dropped.append(name)
        return dropped

    def abort(self, internal_ids: Iterable[str]) -> tuple[list[str], list[RequestOutput]]:
        """End sequences with "abort"; returns those in flight, and outputs without a collector."""
        aborted = []
        outputs = []
        for name in internal_ids:
            state = self._forget(name)
            if state is None:
                continue
            output = state.abort()
            self._stats.finished.append(state.summary())
            aborted.append(name)
            if output is not None and not state.deliver(output):
                outputs.append(output)
        return aborted, outputs

    def fail_all(self, message: str) -> None:
        """End every stream with EngineDeadError: the core has died."""
        for state in self._states.values():
            # One object per reader: raising an exception adds to its traceback.
            state.fail(EngineDeadError(message))
        self._states.clear()
        self._internal_ids.clear()

    def process(self, outputs: Iterable[EngineCoreOutput], timestamp: float) -> ProcessedOutputs:
        """Take a step's news, made at `timestamp` (seconds of time.monotonic() in the core).

        An error in one sequence's news ends that sequence with "error" and no other.
        """
        processed = ProcessedOutputs()
        states, stats = self._states, self._stats
        for output in outputs:
            state = states.get(output.request_id)
            if state is None:
                continue  # aborted, or ended by a stop string, while its step was in flight
            try:
                request_output = state.update(output, timestamp, stats)
            except Exception as error:
                request_output = _break_off(state, error)
            if state.finish_reason is not None:
                self._forget(output.request_id)
                self._stats.finished.append(state.summary())
                if output.finish_reason is None:
                    processed.finishes.append(state.finish_request())
            if request_output is not None and not state.deliver(request_output):
                processed.request_outputs.append(request_output)
        return processed

    def take_stats(self) -> IterationStats:
        """What happened since the last call."""
        stats, self._stats = self._stats, IterationStats()
        return stats

    def _forget(self, internal_id: str) -> RequestState | PoolingState | None:
        state = self._states.pop(internal_id, None)
        if state is not None:
            ids = self._internal_ids[state.external_id]
            ids.remove(internal_id)
            if not ids:
                del self._internal_ids[state.external_id]
        return state


def _break_off(state: RequestState | PoolingState, error: Exception) -> RequestOutput | None:
    logger.error("request %s: its output could not be processed", state.external_id, exc_info=error)
    return state.break_off(f"{type(error).__name__}: {error}")
