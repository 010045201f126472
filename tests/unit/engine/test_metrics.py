"""Metrics: names that dashboards know, exact numbers, and no harm from a mistake in them."""

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from octavo.engine.metrics import TIME_BUCKETS, EngineMetrics, Histogram
from octavo.engine.serial import EngineFacts
from octavo.engine.stats import FinishedRequest, IterationStats, RequestTimes
from octavo.types.engine_output import FinishReason
from octavo.types.stats import PrefixCacheStats, SchedulerStats
from support.tiny import fake_config

FACTS = EngineFacts(
    num_blocks=100, block_size=16, min_reusable_prefix=16, kv_cache_bytes=6400, max_model_len=256
)


@pytest.fixture
def metrics():
    return EngineMetrics(fake_config(served_model_name=("tiny", "other")), FACTS)


def finished(reason=FinishReason.STOP, n=1):
    times = RequestTimes(arrival_time=0.0)
    times._queued, times._scheduled = 1.0, 1.5
    times._first_token, times._last_token, times.e2e = 2.0, 5.0, 6.0
    return FinishedRequest(reason, 10, 4, 16, n, times)


def samples(metrics):
    text = generate_latest(metrics.registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


LABELS = (("engine", "0"), ("model_name", "tiny"))


def test_every_promised_name_is_there(metrics):
    names = {name for name, _ in samples(metrics)}
    for name in (
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "num_preemptions_total",
        "prompt_tokens_total",
        "generation_tokens_total",
        "request_success_total",
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
        "time_to_first_token_seconds_bucket",
        "inter_token_latency_seconds_sum",
        "e2e_request_latency_seconds_count",
        "request_queue_time_seconds_count",
        "request_prefill_time_seconds_count",
        "request_decode_time_seconds_count",
        "request_prompt_tokens_bucket",
        "request_generation_tokens_bucket",
        "request_params_n_bucket",
        "request_params_max_tokens_bucket",
        "iteration_tokens_total_bucket",
        "cache_config_info",
    ):
        assert f"octavo:{name}" in names


def test_numbers_of_a_step(metrics):
    metrics.record(
        SchedulerStats(3, 2, 0.25, 1, 48, PrefixCacheStats(1, 32, 16)),
        IterationStats(
            10, 4, [0.5], {0.1: 1, 0.3: 1}, [finished(), finished(FinishReason.ABORT, None)]
        ),
    )
    metrics.record(SchedulerStats(1, 0, 0.125), IterationStats(num_generation_tokens=2))
    now = samples(metrics)

    def value(name, *labels):
        return now[(f"octavo:{name}", tuple(sorted((*LABELS, *labels))))]

    assert value("num_requests_running") == 1
    assert value("num_requests_waiting") == 0
    assert value("kv_cache_usage_perc") == 0.125
    assert value("num_preemptions_total") == 1
    assert value("prompt_tokens_total") == 10
    assert value("generation_tokens_total") == 6
    assert value("prefix_cache_queries_total") == 32
    assert value("prefix_cache_hits_total") == 16
    assert value("request_success_total", ("finished_reason", "stop")) == 1
    assert value("request_success_total", ("finished_reason", "abort")) == 1
    assert value("request_success_total", ("finished_reason", "error")) == 0
    assert value("time_to_first_token_seconds_count") == 1
    assert value("inter_token_latency_seconds_sum") == pytest.approx(0.4)
    assert value("request_queue_time_seconds_sum") == 1.0
    assert value("request_decode_time_seconds_sum") == 6.0
    assert value("request_time_per_output_token_seconds_sum") == 2.0
    assert value("request_params_n_count") == 1
    assert value("iteration_tokens_total_count") == 1
    assert value("iteration_tokens_total_bucket", ("le", "32.0")) == 0
    assert value("iteration_tokens_total_bucket", ("le", "64.0")) == 1


def test_the_shortest_reusable_prefix_is_told(metrics):
    (labels,) = [dict(labels) for name, labels in samples(metrics) if name.endswith("config_info")]
    assert labels["min_reusable_prefix_tokens"] == labels["block_size"] == "16"
    assert labels["num_gpu_blocks"] == "100"


def test_buckets_are_cumulative_and_inclusive():
    histogram = Histogram([1.0, 2.0])
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
        histogram.observe(value)
    assert histogram.cumulative() == [("1.0", 2), ("2.0", 4), ("+Inf", 5)]
    assert histogram.sum == 14.0


def test_time_buckets_are_in_order_and_wide():
    assert list(TIME_BUCKETS) == sorted(set(TIME_BUCKETS))
    assert TIME_BUCKETS[0] == pytest.approx(1e-4)
    assert 1500 < TIME_BUCKETS[-1] < 3000


def test_a_mistake_in_the_metrics_harms_nobody_and_is_told_once(metrics, monkeypatch):
    told = []
    monkeypatch.setattr("octavo.engine.metrics.logger.exception", told.append)
    metrics.record(None, IterationStats(num_generation_tokens=5))
    for _ in range(3):
        metrics.record(None, IterationStats(num_generation_tokens=-2))
    monkeypatch.setattr(metrics, "_record_scheduler", lambda stats: 1 / 0)
    metrics.record(SchedulerStats(), IterationStats())
    assert metrics.counter("generation_tokens") == 5
    assert len(told) == 1
