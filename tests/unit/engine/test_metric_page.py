"""Numbers that several processes share."""

import os
import subprocess
import sys

import pytest

from octavo.engine.metric_page import ROW_BYTES, MetricPage, MetricRows
from octavo.engine.metrics import EngineMetrics
from octavo.engine.serial import EngineFacts
from octavo.engine.stats import IterationStats
from octavo.types.stats import SchedulerStats
from support.tiny import fake_config

FACTS = EngineFacts(100, 16, 6400, 256, 16)

CHILD = """
import sys
from octavo.engine.metric_page import MetricPage, MetricRows
rows = MetricRows(MetricPage.attach(int(sys.argv[1]), 2), 1)
rows.take(1)
rows.take(2).own[1] = 5.0
"""


def test_another_process_adds_its_part():
    page = MetricPage.create(2)
    rows = MetricRows(page, 0)
    rows.take(1)
    cells = rows.take(2)
    cells.own[0], cells.own[1] = 1.0, 2.0
    code = [sys.executable, "-c", CHILD, str(page.fd)]
    subprocess.run(code, check=True, pass_fds=(page.fd,), env=os.environ)
    assert cells.totals() == [1.0, 7.0]
    assert cells.total() == 1.0


def test_more_than_a_row_holds_is_refused():
    rows = MetricRows(MetricPage.private(), 0)
    with pytest.raises(ValueError, match="do not fit"):
        rows.take(ROW_BYTES)


def test_front_ends_show_the_sums_and_the_cores_gauges():
    page = MetricPage.create(3)
    core, one, two = (EngineMetrics(fake_config(), FACTS, page, index) for index in range(3))
    core.record(SchedulerStats(num_running=4, num_preemptions=2), IterationStats())
    one.record(None, IterationStats(10, 4, [0.5]))
    two.record(None, IterationStats(1, 2, [0.5, 0.25]))
    for metrics in (core, one, two):
        assert metrics.counter("prompt_tokens") == 11
        assert metrics.counter("generation_tokens") == 6
        assert metrics.counter("num_preemptions") == 2
        assert metrics.gauge("num_requests_running") == 4
        (family,) = (f for f in metrics.collect() if f.name.endswith("time_to_first_token_seconds"))
        counts = [s.value for s in family.samples if s.name.endswith("_count")]
        sums = [s.value for s in family.samples if s.name.endswith("_sum")]
        assert (counts, sums) == ([3], [1.25])


def test_a_prefix_that_dashboards_know():
    metrics = EngineMetrics(fake_config(metrics_prefix="vllm"), FACTS)
    names = {family.name for family in metrics.collect()}
    assert all(name.startswith("vllm:") for name in names)
    assert "vllm:e2e_request_latency_seconds" in names
