"""Times of a sequence: differences of the core's clock, latencies of ours."""

import time

from octavo.engine.stats import RequestTimes
from octavo.types.engine_output import EngineCoreEvent, EventType


def test_nothing_is_known_of_a_request_that_never_ran():
    times = RequestTimes(time.time())
    times.finish()
    assert (times.queue, times.prefill, times.decode, times.inference) == (None,) * 4
    assert times.first_token_latency is None
    assert times.e2e >= 0


def test_a_resumption_is_no_new_start():
    times = RequestTimes(time.time())
    times.note_events([EngineCoreEvent(EventType.QUEUED, 1.0)])
    times.note_events([EngineCoreEvent(EventType.SCHEDULED, 2.0)])
    assert times.note_tokens(3.0) is None
    times.note_events(
        [EngineCoreEvent(EventType.PREEMPTED, 3.5), EngineCoreEvent(EventType.SCHEDULED, 9.0)]
    )
    assert times.note_tokens(10.0) == 7.0
    assert (times.queue, times.prefill, times.decode, times.inference) == (1.0, 1.0, 7.0, 8.0)


def test_time_before_the_request_reached_us_counts():
    times = RequestTimes(time.time() - 5)
    times.note_tokens(0.0)
    assert 5 <= times.first_token_latency < 60
    metrics = times.as_metrics()
    assert metrics.first_token_latency == times.first_token_latency


def test_an_arrival_in_the_future_is_now():
    times = RequestTimes(time.time() + 1000)
    times.finish()
    assert 0 <= times.e2e < 60
