"""OtlpTracer: spans with OpenTelemetry's gen_ai attributes, sent to an OTLP collector."""

from __future__ import annotations

import time
from collections.abc import Mapping

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from octavo.engine.tracing import RequestSpan
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

_NANOSECONDS = 1_000_000_000
_PATH = "/v1/traces"  # of OTLP over HTTP, where the address has none


class OtlpTracer:
    """One span `llm_request` per request, a child of the client's span where it names one.

    Spans are sent in batches by a thread of the SDK; a collector that is away costs spans, never
    requests. Attribute names: OpenTelemetry's semantic conventions for generative AI.
    """

    def __init__(self, endpoint: str, exporter: SpanExporter | None = None) -> None:
        if exporter is None:
            address = endpoint.rstrip("/")
            if "/" not in address.partition("://")[2]:
                address += _PATH
            exporter = OTLPSpanExporter(endpoint=address)
        resource = Resource.create({"service.name": "octavo"})
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("octavo")
        self._propagator = TraceContextTextMapPropagator()
        self._loss_told = False

    def record(self, span: RequestSpan) -> None:
        """See Tracer."""
        try:
            self._record(span)
        except Exception:
            if not self._loss_told:
                self._loss_told = True
                logger.exception("a trace span was lost; this is told once")

    def shutdown(self) -> None:
        """See Tracer."""
        self._provider.shutdown()

    def _record(self, span: RequestSpan) -> None:
        begin = span.metrics.arrival_time or time.time()
        elapsed = span.metrics.e2e_latency
        end = time.time() if elapsed is None else begin + elapsed
        made = self._tracer.start_span(
            "llm_request",
            context=self._propagator.extract(dict(span.trace_headers)),
            kind=SpanKind.SERVER,
            start_time=int(begin * _NANOSECONDS),
            attributes=_attributes(span),
        )
        made.end(end_time=int(end * _NANOSECONDS))


def _attributes(span: RequestSpan) -> Mapping[str, str | int | float | tuple[str, ...]]:
    params, metrics = span.params, span.metrics
    values: dict[str, str | int | float | tuple[str, ...] | None] = {
        "gen_ai.request.id": span.request_id,
        "gen_ai.response.model": span.model,
        "gen_ai.request.temperature": params.temperature,
        "gen_ai.request.top_p": params.top_p,
        "gen_ai.request.max_tokens": params.max_tokens,
        "gen_ai.request.n": params.n,
        "gen_ai.response.finish_reasons": span.finish_reasons,
        "gen_ai.usage.prompt_tokens": span.num_prompt_tokens,
        "gen_ai.usage.cached_tokens": span.num_cached_tokens,
        "gen_ai.usage.completion_tokens": span.num_completion_tokens,
        "gen_ai.latency.time_in_queue": metrics.queue_time,
        "gen_ai.latency.time_to_first_token": metrics.first_token_latency,
        "gen_ai.latency.e2e": metrics.e2e_latency,
    }
    return {name: value for name, value in values.items() if value is not None}
