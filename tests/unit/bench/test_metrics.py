"""Figures of known results."""

import pytest

from octavo.bench.http_client import Result
from octavo.bench.metrics import (
    parse_goodput,
    parse_metrics,
    parse_percentiles,
    summarize,
    time_per_token,
)
from octavo.types.errors import ConfigError


def result(start, arrivals, tokens, error=None):
    return Result(
        start=start,
        end=arrivals[-1] if arrivals else start,
        arrivals=list(arrivals),
        prompt_tokens=10,
        output_tokens=tokens,
        error=error,
    )


RESULTS = [
    result(0.0, [1.0, 2.0, 4.0], 7),  # ttft 1000 ms, tpot 500 ms, itl 1000 and 2000 ms
    result(1.0, [1.5], 1),  # ttft 500 ms
    result(2.0, [], 0, error="refused"),
]


def figures(**options):
    defaults = {"percentiles": [50.0], "metrics": ["ttft", "tpot", "itl", "e2el"], "goodput": {}}
    return summarize(RESULTS, **defaults | options)


def test_throughput_counts_what_was_completed():
    found = figures()
    assert (found["completed"], found["failed"]) == (2, 1)
    assert found["duration"] == 4.0
    assert found["request_throughput"] == 0.5
    assert found["total_input_tokens"] == 20
    assert found["output_throughput"] == 2.0
    assert found["total_token_throughput"] == 7.0
    assert found["max_concurrent_requests"] == 2


def test_latencies():
    found = figures()
    assert found["mean_ttft_ms"] == 750.0
    assert found["mean_tpot_ms"] == 500.0
    assert found["mean_itl_ms"] == 1500.0
    assert found["mean_e2el_ms"] == 2250.0
    assert found["p50_ttft_ms"] == found["median_ttft_ms"] == 750.0
    assert found["std_tpot_ms"] == 0.0


def test_only_what_is_asked_for():
    found = figures(metrics=["itl"], percentiles=[90.0, 99.5])
    assert {name for name in found if name.endswith("_ms")} == {
        "mean_itl_ms", "median_itl_ms", "std_itl_ms", "p90_itl_ms", "p99.5_itl_ms"
    }  # fmt: skip


def test_goodput_is_the_rate_of_requests_within_every_limit():
    assert figures(goodput={"ttft": 600.0})["request_goodput"] == 0.25
    assert figures(goodput={"ttft": 1000.0, "tpot": 499.0})["request_goodput"] == 0.25
    assert figures(goodput={"ttft": 1000.0, "tpot": 500.0})["request_goodput"] == 0.5
    assert "request_goodput" not in figures()


def test_events_stand_in_for_tokens_the_server_did_not_count():
    assert time_per_token(result(0.0, [1.0, 2.0], None)) == 1000.0


def test_nothing_completed():
    found = summarize([RESULTS[2]], percentiles=[99.0], metrics=["ttft"], goodput={"ttft": 1.0})
    assert found["completed"] == 0
    assert not any(name.endswith("_ms") for name in found)


@pytest.mark.parametrize(
    ("parse", "text"),
    [(parse_percentiles, "a"), (parse_percentiles, "101"), (parse_percentiles, "nan"),
     (parse_metrics, "ttft,x"), (parse_goodput, ("itl:5",)), (parse_goodput, ("ttft:-1",)),
     (parse_goodput, ("ttft",))],
)  # fmt: skip
def test_bad_words_are_refused(parse, text):
    with pytest.raises(ConfigError):
        parse(text)
