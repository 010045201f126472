"""Tracer: one trace span per request, and the tracer that makes none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from octavo.types.errors import ConfigError
from octavo.types.outputs import RequestMetrics, RequestOutput
from octavo.types.request import EngineCoreRequest
from octavo.types.sampling_params import RequestOutputKind, SamplingParams
from octavo.utils.registry import Registry


@dataclass(frozen=True, slots=True)
class RequestSpan:
    """What a span tells of a request that has ended; no text of it."""

    request_id: str
    model: str
    params: SamplingParams
    num_prompt_tokens: int
    num_cached_tokens: int
    num_completion_tokens: int
    finish_reasons: tuple[str, ...]
    metrics: RequestMetrics
    trace_headers: Mapping[str, str]  # W3C trace context of the client's span, or {}


class Tracer(Protocol):
    """Where spans go."""

    def record(self, span: RequestSpan) -> None:
        """A request has ended. Never raises, never blocks."""

    def shutdown(self) -> None:
        """Send what waits."""


class NoTracer:
    """Keeps nothing."""

    def record(self, span: RequestSpan) -> None:
        """See Tracer."""

    def shutdown(self) -> None:
        """See Tracer."""


class OpenSpan:
    """A request while it runs, of which `note` sees every output."""

    def __init__(
        self, tracer: Tracer, request_id: str, model: str, request: EngineCoreRequest
    ) -> None:
        self._tracer = tracer
        self._request_id = request_id
        self._model = model
        self._request = request
        self._num_tokens: dict[int, int] = {}
        self._reasons: dict[int, str] = {}
        self._num_cached_tokens = 0
        self._metrics = RequestMetrics(arrival_time=request.arrival_time)
        self._is_delta = request.sampling_params.output_kind is RequestOutputKind.DELTA

    def note(self, output: RequestOutput) -> None:
        """News of the request."""
        self._metrics = output.metrics
        self._num_cached_tokens = output.num_cached_tokens or self._num_cached_tokens
        for completion in output.outputs:
            before = self._num_tokens.get(completion.index, 0) if self._is_delta else 0
            self._num_tokens[completion.index] = before + len(completion.token_ids)
            if completion.finish_reason is not None:
                self._reasons[completion.index] = completion.finish_reason

    def end(self) -> None:
        """The request has ended, or its reader has left."""
        request = self._request
        self._tracer.record(
            RequestSpan(
                self._request_id,
                self._model,
                request.sampling_params,
                request.num_prompt_tokens,
                self._num_cached_tokens,
                sum(self._num_tokens.values()),
                tuple(self._reasons.get(i, "abort") for i in range(request.sampling_params.n)),
                self._metrics,
                request.trace_headers or {},
            )
        )


class NoSpan:
    """The span of a request that is not traced."""

    def note(self, output: RequestOutput) -> None:
        """See OpenSpan."""

    def end(self) -> None:
        """See OpenSpan."""


_NO_SPAN = NoSpan()


def open_span(
    tracer: Tracer, request_id: str, model: str, request: EngineCoreRequest
) -> OpenSpan | NoSpan:
    """The span of a request that begins."""
    if isinstance(tracer, NoTracer):
        return _NO_SPAN
    return OpenSpan(tracer, request_id, model, request)


# By string: OpenTelemetry is an optional dependency.
TRACERS: Registry[Callable[[str], Tracer]] = Registry(
    "tracer", {"otlp": "octavo.engine.otlp:OtlpTracer"}
)


def make_tracer(endpoint: str | None) -> Tracer:
    """The tracer for a collector's address. Raises ConfigError if OpenTelemetry is missing."""
    if endpoint is None:
        return NoTracer()
    try:
        make = TRACERS.get("otlp")
    except ImportError as error:
        raise ConfigError(
            f"otlp_traces_endpoint={endpoint!r} needs OpenTelemetry ({error}); "
            "pip install 'octavo[otel]'"
        ) from None
    return make(endpoint)
