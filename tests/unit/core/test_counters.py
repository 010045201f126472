from __future__ import annotations

from octavo.core.counters import SchedulerCounters


def report(counters, has_prefix_cache=True):
    return counters.report(
        num_running=1,
        num_waiting=2,
        kv_cache_usage=0.5,
        step=7,
        has_prefix_cache=has_prefix_cache,
    )


def test_counts_start_again_after_a_report():
    counters = SchedulerCounters()
    counters.num_preemptions += 2
    counters.num_scheduled_tokens += 30
    counters.num_draft_tokens += 4
    counters.num_accepted_tokens += 3
    counters.prefix_cache.hits += 16
    first = report(counters)
    assert (first.num_running, first.num_waiting, first.kv_cache_usage, first.step) == (
        1,
        2,
        0.5,
        7,
    )
    assert (first.num_preemptions, first.num_scheduled_tokens) == (2, 30)
    assert (first.num_draft_tokens, first.num_accepted_tokens) == (4, 3)
    assert first.prefix_cache.hits == 16
    counters.num_preemptions += 1
    second = report(counters)
    assert (second.num_preemptions, second.num_scheduled_tokens) == (1, 0)
    assert (second.num_draft_tokens, second.num_accepted_tokens) == (0, 0)
    assert second.prefix_cache.hits == 0
    assert counters.num_preemptions == 3


def test_without_a_prefix_cache_nothing_is_said_about_it():
    assert report(SchedulerCounters(), has_prefix_cache=False).prefix_cache is None
