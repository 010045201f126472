"""The watchdog reports a step that does not end, once, and its end."""

import logging
import threading

import pytest

from octavo.engine.watchdog import StallWatchdog


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr("octavo.engine.watchdog.time", clock)
    return clock


def test_an_idle_core_sends_nothing(clock):
    sent = []
    watchdog = StallWatchdog(10.0, sent.append)
    watchdog._look()
    watchdog.begin_step()
    watchdog.end_step()
    clock.now += 1000
    watchdog._look()
    assert sent == []


def test_a_running_step_is_a_heartbeat(clock):
    sent = []
    watchdog = StallWatchdog(10.0, sent.append)
    watchdog.begin_step()
    clock.now += 3
    watchdog._look()
    assert [(h.num_steps, h.step_seconds, h.stalled) for h in sent] == [(1, 3.0, False)]


def test_a_stall_is_reported_once_and_taken_back(clock, caplog):
    sent = []
    watchdog = StallWatchdog(10.0, sent.append)
    watchdog.begin_step()
    clock.now += 11
    watchdog._look()
    watchdog._look()
    assert [h.stalled for h in sent] == [True, True]
    reports = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert len(reports) == 1
    watchdog.end_step()
    watchdog._look()
    assert sent[-1].stalled is False
    watchdog._look()
    assert len(sent) == 3


def test_a_new_step_after_a_stall_is_measured_afresh(clock):
    sent = []
    watchdog = StallWatchdog(10.0, sent.append)
    for _ in range(2):
        watchdog.begin_step()
        clock.now += 11
        watchdog._look()
    assert [(h.num_steps, h.stalled) for h in sent] == [(1, True), (2, True)]


def test_the_thread_looks_by_itself_logs_stacks_and_stops(caplog):
    stalled = threading.Event()
    watchdog = StallWatchdog(0.04, lambda heartbeat: heartbeat.stalled and stalled.set())
    watchdog.begin_step()
    watchdog.start()
    assert stalled.wait(30)
    watchdog.stop()
    assert not watchdog._thread.is_alive()
    assert "test_the_thread_looks_by_itself" in caplog.text
