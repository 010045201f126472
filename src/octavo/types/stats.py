"""Counts that the scheduler reports with each step."""

from __future__ import annotations

import msgspec


class PrefixCacheStats(msgspec.Struct, array_like=True, omit_defaults=True):
    """Prefix-cache accounting since the last report, in tokens and requests."""

    requests: int = 0
    queries: int = 0  # prompt tokens looked up
    hits: int = 0  # prompt tokens found


class SchedulerStats(msgspec.Struct, array_like=True, omit_defaults=True):
    """State of the scheduler after a step; counters are deltas since the last report."""

    num_running: int = 0
    num_waiting: int = 0
    kv_cache_usage: float = 0.0  # 0..1
    num_preemptions: int = 0
    num_scheduled_tokens: int = 0
    prefix_cache: PrefixCacheStats | None = None
    step: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_forced_tokens: int = 0  # appended without a step of their own
