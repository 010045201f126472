"""SchedulerCounters: what happened, counted between two reports."""

from __future__ import annotations

from octavo.types.stats import PrefixCacheStats, SchedulerStats


class SchedulerCounters:
    """Counts since the last report; `num_preemptions` is a total."""

    __slots__ = (
        "num_accepted_tokens",
        "num_draft_tokens",
        "num_forced_tokens",
        "num_preemptions",
        "num_scheduled_tokens",
        "prefix_cache",
        "reported_preemptions",
    )

    def __init__(self) -> None:
        self.num_preemptions = 0
        self.reported_preemptions = 0
        self._start()

    def report(
        self,
        *,
        num_running: int,
        num_waiting: int,
        kv_cache_usage: float,
        step: int,
        has_prefix_cache: bool,
    ) -> SchedulerStats:
        """The counts, with the state of the scheduler now; counting starts again."""
        stats = SchedulerStats(
            num_running=num_running,
            num_waiting=num_waiting,
            kv_cache_usage=kv_cache_usage,
            num_preemptions=self.num_preemptions - self.reported_preemptions,
            num_scheduled_tokens=self.num_scheduled_tokens,
            prefix_cache=self.prefix_cache if has_prefix_cache else None,
            step=step,
            num_draft_tokens=self.num_draft_tokens,
            num_accepted_tokens=self.num_accepted_tokens,
            num_forced_tokens=self.num_forced_tokens,
        )
        self.reported_preemptions = self.num_preemptions
        self._start()
        return stats

    def _start(self) -> None:
        self.num_scheduled_tokens = 0
        self.num_draft_tokens = 0
        self.num_accepted_tokens = 0
        self.num_forced_tokens = 0
        self.prefix_cache = PrefixCacheStats()
