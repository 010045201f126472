"""StatLog: the line about throughput and load that is logged every ten seconds."""

from __future__ import annotations

import time

from octavo.engine.metrics import EngineMetrics
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

INTERVAL = 10.0  # seconds
_GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")


class StatLog:
    """Says what happened since the line before; silent while nothing happens."""

    def __init__(self, metrics: EngineMetrics) -> None:
        self._metrics = metrics
        self._last_time = time.monotonic()
        self._last = self._counts()
        self._was_idle = True

    def log_if_due(self) -> None:
        """Log when the interval is over."""
        if time.monotonic() - self._last_time >= INTERVAL:
            self.log()

    def log(self) -> None:
        """Log the line, unless this interval and the one before were idle."""
        now, counts = time.monotonic(), self._counts()
        prompt, generation, queries, hits = (
            new - old for new, old in zip(counts, self._last, strict=True)
        )
        seconds = max(now - self._last_time, 1e-9)
        self._last_time, self._last = now, counts
        running, waiting, usage = map(self._metrics.gauge, _GAUGES)
        idle = not (prompt or generation or running or waiting)
        if idle and self._was_idle:
            return
        self._was_idle = idle
        hit_rate = f", prefix cache hits {hits / queries:.0%}" if queries else ""
        logger.info(
            "prompt %.1f tok/s, generation %.1f tok/s, running %d, waiting %d, KV cache %.1f%%%s",
            prompt / seconds,
            generation / seconds,
            running,
            waiting,
            100 * usage,
            hit_rate,
        )

    def _counts(self) -> tuple[int, int, int, int]:
        names = ("prompt_tokens", "generation_tokens", "prefix_cache_queries", "prefix_cache_hits")
        prompt, generation, queries, hits = map(self._metrics.counter, names)
        return prompt, generation, queries, hits
