"""What a front end counts per request and per step."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from octavo.types.engine_output import EngineCoreEvent, EventType, FinishReason
from octavo.types.outputs import RequestMetrics


class RequestTimes:
    """Moments of one sequence.

    Arrival and end are readings of this process, the others of the core's; both clocks are the
    machine's monotonic one, and each difference takes both readings from one process.
    """

    def __init__(self, arrival_time: float) -> None:
        self.arrival_time = arrival_time  # time.time()
        self._arrival = time.monotonic() - max(0.0, time.time() - arrival_time)
        self._queued: float | None = None
        self._scheduled: float | None = None
        self._first_token: float | None = None
        self._last_token: float | None = None
        self.first_token_latency: float | None = None  # seconds from arrival
        self.e2e: float | None = None  # seconds from arrival to the end
        self._metrics: RequestMetrics | None = None  # while they are as they were

    def note_events(self, events: list[EngineCoreEvent]) -> None:
        """Take over what the core reports of its queue; a resumption is no new start."""
        self._metrics = None
        for event in events:
            if event.type is EventType.QUEUED:
                self._queued = event.timestamp
            elif event.type is EventType.SCHEDULED and self._scheduled is None:
                self._scheduled = event.timestamp

    def note_tokens(self, timestamp: float) -> float | None:
        """New tokens left the core at `timestamp`; seconds since the ones before, if any."""
        previous, self._last_token = self._last_token, timestamp
        if previous is not None:
            return timestamp - previous
        self._metrics = None
        self._first_token = timestamp
        self.first_token_latency = time.monotonic() - self._arrival
        return None

    def finish(self) -> None:
        """The sequence has ended."""
        self._metrics = None
        self.e2e = time.monotonic() - self._arrival

    @property
    def queue(self) -> float | None:
        """Seconds in the waiting queue."""
        return _difference(self._queued, self._scheduled)

    @property
    def prefill(self) -> float | None:
        """Seconds from the first scheduling to the first token."""
        return _difference(self._scheduled, self._first_token)

    @property
    def decode(self) -> float | None:
        """Seconds from the first token to the last."""
        return _difference(self._first_token, self._last_token)

    @property
    def inference(self) -> float | None:
        """Seconds from the first scheduling to the last token."""
        return _difference(self._scheduled, self._last_token)

    def as_metrics(self) -> RequestMetrics:
        """The part that users see."""
        if self._metrics is None:
            self._metrics = RequestMetrics(
                self.arrival_time, self.queue, self.first_token_latency, self.e2e
            )
        return self._metrics


@dataclass(slots=True)
class FinishedRequest:
    """One sequence that ended."""

    reason: FinishReason
    num_prompt_tokens: int
    num_generation_tokens: int
    max_tokens: int
    n: int | None  # of its request; None for the sequences after the first
    times: RequestTimes
    max_num_generation_tokens: int | None = None  # of its request; None unless it ends with this
    num_computed_prompt_tokens: int | None = None  # None if it never ran


@dataclass(slots=True)
class IterationStats:
    """The news since the last report, as a front end saw them."""

    num_prompt_tokens: int = 0  # of sequences that got their first token
    num_generation_tokens: int = 0
    first_token_latencies: list[float] = field(default_factory=list)  # seconds
    # Seconds -> how often: the sequences of one step have few different ones.
    inter_token_latencies: dict[float, int] = field(default_factory=dict)
    finished: list[FinishedRequest] = field(default_factory=list)
    num_cached_tokens: int = 0  # of the prompts counted, found in the prefix cache

    def note_latency(self, seconds: float) -> None:
        """Tokens of a sequence came so long after those before."""
        latencies = self.inter_token_latencies
        latencies[seconds] = latencies.get(seconds, 0) + 1


def _difference(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else end - begin
