"""Metrics as plain objects."""

import pytest

from octavo.engine.metrics import EngineMetrics
from octavo.engine.metrics_reader import Counter, Gauge, Histogram, read_metrics
from octavo.engine.serial import EngineFacts
from octavo.engine.stats import IterationStats
from octavo.types.stats import SchedulerStats
from support.tiny import fake_config

LABELS = {"engine": "0", "model_name": "tiny"}


def test_every_kind():
    metrics = EngineMetrics(fake_config(served_model_name=("tiny",)), EngineFacts(9, 16, 99, 256))
    metrics.record(SchedulerStats(3, 2), IterationStats(10, 4, [0.5], {0.1: 1, 0.3: 1}))
    by_name = {metric.name: metric for metric in read_metrics(metrics.registry)}
    running = "octavo:num_requests_running"
    assert by_name[running] == Gauge(running, LABELS, 3)
    tokens = "octavo:generation_tokens"
    assert by_name[tokens] == Counter(tokens, LABELS, 4)
    latency = by_name["octavo:inter_token_latency_seconds"]
    assert isinstance(latency, Histogram)
    assert latency.labels == LABELS
    assert latency.count == 2
    assert latency.sum == pytest.approx(0.4)
    assert latency.buckets["0.1"] == 1
    assert latency.buckets["+Inf"] == 2
