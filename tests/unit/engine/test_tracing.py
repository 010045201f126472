"""One span per request, with the client's trace as its parent, and no text."""

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from octavo.engine import tracing
from octavo.engine.otlp import OtlpTracer
from octavo.engine.tracing import NoTracer, make_tracer, open_span
from octavo.types.errors import ConfigError
from octavo.types.outputs import CompletionOutput, RequestMetrics, RequestOutput
from octavo.types.request import EngineCoreRequest
from octavo.types.sampling_params import RequestOutputKind, SamplingParams

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


def request(n=1, headers=None, **fields):
    params = SamplingParams(n=n, output_kind=RequestOutputKind.DELTA, **fields)
    return EngineCoreRequest("0:a", [1, 2, 3], 3, params, 0, 100.0, 16, trace_headers=headers)


def output(*completions, **fields):
    return RequestOutput("a", "secret prompt", [1, 2, 3], list(completions), False, **fields)


def test_a_span_tells_what_came_of_a_request():
    exporter = InMemorySpanExporter()
    tracer = OtlpTracer("http://nowhere", exporter)
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    span = open_span(tracer, "a", "tiny", request(2, headers, temperature=0.5, max_tokens=7))
    span.note(output(CompletionOutput(0, "secret", [4, 5]), num_cached_tokens=2))
    span.note(
        output(
            CompletionOutput(0, "text", [6], finish_reason="length"),
            CompletionOutput(1, "", [7], finish_reason="stop"),
            metrics=RequestMetrics(100.0, 0.25, 0.5, 2.0),
        )
    )
    span.end()
    tracer.shutdown()
    (found,) = exporter.get_finished_spans()
    assert found.name == "llm_request"
    assert format(found.context.trace_id, "032x") == TRACE
    assert format(found.parent.span_id, "016x") == PARENT
    assert (found.start_time, found.end_time) == (100_000_000_000, 102_000_000_000)
    values = dict(found.attributes)
    assert values["gen_ai.usage.prompt_tokens"] == 3
    assert values["gen_ai.usage.cached_tokens"] == 2
    assert values["gen_ai.usage.completion_tokens"] == 4
    assert values["gen_ai.response.finish_reasons"] == ("length", "stop")
    assert values["gen_ai.latency.time_to_first_token"] == 0.5
    assert values["gen_ai.request.max_tokens"] == 7
    assert "secret" not in str(values)


def test_a_reader_that_leaves_ends_the_span():
    exporter = InMemorySpanExporter()
    tracer = OtlpTracer("http://nowhere", exporter)
    open_span(tracer, "a", "tiny", request()).end()
    tracer.shutdown()
    (found,) = exporter.get_finished_spans()
    assert found.attributes["gen_ai.response.finish_reasons"] == ("abort",)


def test_a_fault_in_a_span_harms_nobody(monkeypatch, caplog):
    tracer = OtlpTracer("http://nowhere", InMemorySpanExporter())
    monkeypatch.setattr(tracer, "_record", lambda span: 1 / 0)
    for _ in range(3):
        open_span(tracer, "a", "tiny", request()).end()


def test_nothing_is_traced_unless_asked():
    assert isinstance(make_tracer(None), NoTracer)
    open_span(make_tracer(None), "a", "tiny", request()).end()


def test_a_missing_package_is_told_with_the_remedy(monkeypatch):
    class Missing:
        def get(self, name):
            raise ImportError("No module named 'opentelemetry'")

    monkeypatch.setattr(tracing, "TRACERS", Missing())
    with pytest.raises(ConfigError, match=r"octavo\[otel\]"):
        make_tracer("http://collector:4318")
