"""The line that is logged every ten seconds."""

import logging

from octavo.engine.metrics import EngineMetrics
from octavo.engine.serial import EngineFacts
from octavo.engine.stat_log import StatLog
from octavo.engine.stats import IterationStats
from octavo.types.stats import PrefixCacheStats, SchedulerStats
from support.tiny import fake_config


def test_the_line_tells_rates_and_is_silent_when_idle(monkeypatch, caplog):
    metrics = EngineMetrics(fake_config(), EngineFacts(9, 16, 99, 256))

    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr("octavo.engine.stat_log.time", clock)
    caplog.set_level(logging.INFO, logger="octavo")
    log = StatLog(metrics)
    metrics.record(
        SchedulerStats(3, 2, 0.25, prefix_cache=PrefixCacheStats(1, 32, 16)),
        IterationStats(100, 50),
    )
    clock.now = 9.0
    log.log_if_due()
    assert not caplog.records
    clock.now = 10.0
    log.log_if_due()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "prompt 10.0 tok/s, generation 5.0 tok/s, running 3, waiting 2, KV cache 25.0%" in line
    assert "50%" in line
    metrics.record(SchedulerStats(), IterationStats())
    for _ in range(3):
        log.log()
    assert len(caplog.records) == 2, "one more line says that it is idle now, then silence"
