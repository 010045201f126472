"""EngineMetrics: counters, gauges and histograms of one engine, in Prometheus form."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from octavo.config.octavo_config import OctavoConfig
from octavo.engine.metric_page import MetricCells, MetricPage, MetricRows
from octavo.engine.serial import EngineFacts
from octavo.engine.stats import FinishedRequest, IterationStats
from octavo.types.engine_output import FinishReason
from octavo.types.stats import SchedulerStats
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

_LABELS = ("model_name", "engine")
_ENGINE = "0"
# Six per decade from 0.1 ms to 2000 s: within a fifth of the true value when interpolated.
TIME_BUCKETS = tuple(
    float(f"{step}e{power}") for power in range(-4, 4) for step in (1, 1.5, 2, 3, 5, 7)
)[:-3]


class Histogram:
    """Counts of observations per bucket.

    Without `cells` the numbers are private; else they are the counts per bucket, then the sum.
    """

    def __init__(self, bounds: Sequence[float], cells: MetricCells | None = None) -> None:
        self._bounds = tuple(bounds)
        self._cells = cells or MetricRows(MetricPage.private(), 0).take(self.width(bounds))
        self._own = self._cells.own

    @staticmethod
    def width(bounds: Sequence[float]) -> int:
        """How many numbers it keeps."""
        return len(bounds) + 2

    @property
    def sum(self) -> float:
        """Of all values."""
        return self._cells.totals()[-1]

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value that was seen so often."""
        own = self._own
        own[bisect_left(self._bounds, value)] += times
        own[-1] += value * times

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, observations up to it), "+Inf" last: Prometheus' form."""
        total = 0.0
        buckets = []
        counts = self._cells.totals()[:-1]
        for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else repr(float(bound)), total))
        return buckets


class EngineMetrics:
    """Updated once per step by the thread of the front end, read by whoever scrapes.

    `prometheus_client`'s own metric objects take a lock per observation; at hundreds of tokens
    per step that is time of the output path, so the numbers are kept here and given to the
    library when it asks. Several front ends of one core share a page, and each shows the sums.
    """

    def __init__(
        self,
        config: OctavoConfig,
        facts: EngineFacts,
        page: MetricPage | None = None,
        index: int = 0,
    ) -> None:
        self._prefix = f"{config.observability.metrics_prefix}:"
        self._labels = (config.model.served_model_name[0], _ENGINE)
        self._cache_info = {
            "block_size": str(facts.block_size),
            "min_reusable_prefix_tokens": str(facts.min_reusable_prefix),
            "num_gpu_blocks": str(facts.num_blocks),
            "enable_prefix_caching": str(config.cache.enable_prefix_caching),
            "kv_cache_dtype": config.cache.kv_cache_dtype,
            "kv_cache_bytes": str(facts.kv_cache_bytes),
        }
        self.startup = dict(facts.startup)
        self._loss_told = False
        rows = MetricRows(page or MetricPage.private(), index)
        self._gauges = {name: rows.take(1) for name in _GAUGES}
        self._counters = {name: rows.take(1) for name in _COUNTERS}
        self._successes = {str(reason): rows.take(1) for reason in FinishReason}
        self._sources = {name: rows.take(1) for name in _SOURCES}
        tokens = _one_two_five(facts.max_model_len)
        step = _powers_of_two(config.scheduler.max_num_batched_tokens)
        bounds = {"time": TIME_BUCKETS, "tokens": tokens, "step": step, "n": (1, 2, 5, 10, 20)}
        self._histograms = {
            name: Histogram(bounds[kind], rows.take(Histogram.width(bounds[kind])))
            for name, (kind, _) in _HISTOGRAMS.items()
        }
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def counter(self, name: str) -> int:
        """The value of a counter, by its name without prefix and suffix."""
        return int(self._counters[name].total())

    def gauge(self, name: str) -> float:
        """The value of a gauge, by its name without prefix."""
        return self._gauges[name].total()

    def set_gauge(self, name: str, value: float) -> None:
        """This process's part of a gauge."""
        self._gauges[name].own[0] = value

    def count_refused(self) -> None:
        """A request was refused because the queue is full."""
        self._counters["requests_refused"].own[0] += 1

    def record(self, scheduler: SchedulerStats | None, iteration: IterationStats) -> None:
        """Take the news of a step. Never raises: a stream must not end over a number."""
        try:
            self._record_scheduler(scheduler)
            self._record_iteration(iteration)
        except Exception:
            if not self._loss_told:
                self._loss_told = True
                logger.exception("the metrics of a step were lost; this is told once")

    def collect(self) -> Iterator[Metric]:
        """Every metric as it stands; called by `prometheus_client`."""
        prefix = self._prefix
        for name, help_text in _GAUGES.items():
            gauge = GaugeMetricFamily(prefix + name, help_text, labels=_LABELS)
            gauge.add_metric(self._labels, self._gauges[name].total())
            yield gauge
        for name, help_text in _COUNTERS.items():
            counter = CounterMetricFamily(prefix + name, help_text, labels=_LABELS)
            counter.add_metric(self._labels, self._counters[name].total())
            yield counter
        startup = GaugeMetricFamily(
            prefix + "startup_seconds",
            "Where the seconds of the start went; the phases sum to its wall time.",
            labels=(*_LABELS, "phase"),
        )
        for phase, seconds in self.startup.items():
            startup.add_metric((*self._labels, phase), seconds)
        yield startup
        yield self._labelled(
            "request_success",
            "Sequences that ended, by finish reason.",
            "finished_reason",
            self._successes,
        )
        yield self._labelled(
            "prompt_tokens_by_source",
            "Prompt tokens by where their keys and values came from.",
            "source",
            self._sources,
        )
        for name, (_, help_text) in _HISTOGRAMS.items():
            family = HistogramMetricFamily(prefix + name, help_text, labels=_LABELS)
            histogram = self._histograms[name]
            family.add_metric(self._labels, histogram.cumulative(), histogram.sum)
            yield family
        info = GaugeMetricFamily(
            prefix + "cache_config_info",
            "The KV cache, as labels. Prefixes shorter than min_reusable_prefix_tokens are "
            "never found in it; 0: prefix caching is off.",
            labels=(*_LABELS, *self._cache_info),
        )
        info.add_metric((*self._labels, *self._cache_info.values()), 1)
        yield info

    def _labelled(
        self, name: str, help_text: str, label: str, values: Mapping[str, MetricCells]
    ) -> Metric:
        family = CounterMetricFamily(self._prefix + name, help_text, labels=(*_LABELS, label))
        for value, cells in values.items():
            family.add_metric((*self._labels, value), cells.total())
        return family

    def _record_scheduler(self, stats: SchedulerStats | None) -> None:
        if stats is None:
            return
        self.set_gauge("num_requests_running", stats.num_running)
        self.set_gauge("num_requests_waiting", stats.num_waiting)
        self.set_gauge("kv_cache_usage_perc", stats.kv_cache_usage)
        self._add("num_preemptions", stats.num_preemptions)
        self._add("spec_decode_num_draft_tokens", stats.num_draft_tokens)
        self._add("spec_decode_num_accepted_tokens", stats.num_accepted_tokens)
        self._add("structured_output_forced_tokens", stats.num_forced_tokens)
        if stats.prefix_cache is not None:
            self._add("prefix_cache_queries", stats.prefix_cache.queries)
            self._add("prefix_cache_hits", stats.prefix_cache.hits)
        if stats.num_scheduled_tokens:
            self._histograms["iteration_tokens_total"].observe(stats.num_scheduled_tokens)

    def _record_iteration(self, stats: IterationStats) -> None:
        cached = min(stats.num_cached_tokens, stats.num_prompt_tokens)
        self._add("prompt_tokens", stats.num_prompt_tokens)
        self._add("prompt_tokens_cached", cached)
        self._sources["local_cache_hit"].own[0] += cached
        self._sources["local_compute"].own[0] += stats.num_prompt_tokens - cached
        self._add("generation_tokens", stats.num_generation_tokens)
        for latency in stats.first_token_latencies:
            self._histograms["time_to_first_token_seconds"].observe(latency)
        for latency, times in stats.inter_token_latencies.items():
            self._histograms["inter_token_latency_seconds"].observe(latency, times)
        for request in stats.finished:
            self._record_finished(request)

    def _add(self, name: str, value: int) -> None:
        """Counters only rise; one that fell would look like a restart."""
        if value < 0:
            raise ValueError(f"{value} more {name}")
        self._counters[name].own[0] += value

    def _record_finished(self, request: FinishedRequest) -> None:
        self._successes[str(request.reason)].own[0] += 1
        times = request.times
        num_tokens = request.num_generation_tokens
        per_token = None
        if times.decode is not None and num_tokens > 1:
            per_token = times.decode / (num_tokens - 1)
        values: dict[str, float | None] = {
            "e2e_request_latency_seconds": times.e2e,
            "request_queue_time_seconds": times.queue,
            "request_prefill_time_seconds": times.prefill,
            "request_decode_time_seconds": times.decode,
            "request_inference_time_seconds": times.inference,
            "request_time_per_output_token_seconds": per_token,
            "request_prompt_tokens": request.num_prompt_tokens,
            "request_generation_tokens": num_tokens,
            "request_params_max_tokens": request.max_tokens,
            "request_params_n": request.n,
            "request_max_num_generation_tokens": request.max_num_generation_tokens,
            "request_prefill_kv_computed_tokens": request.num_computed_prompt_tokens,
        }
        for name, value in values.items():
            if value is not None:
                self._histograms[name].observe(value)


_GAUGES = {
    "num_requests_running": "Sequences in the running batch.",
    "num_requests_waiting": "Sequences waiting to run.",
    "kv_cache_usage_perc": "Share of KV blocks in use, 1 = all.",
    "server_load": "HTTP requests for model output that are being answered.",
}

_SOURCES = ("local_compute", "local_cache_hit")

_COUNTERS = {
    "num_preemptions": "Sequences put back into the queue because the KV cache was full.",
    "prompt_tokens": "Prompt tokens of sequences that got their first token.",
    "prompt_tokens_cached": "Prompt tokens of such sequences that were found in the prefix cache.",
    "generation_tokens": "Tokens generated.",
    "prefix_cache_queries": "Prompt tokens looked up in the prefix cache.",
    "prefix_cache_hits": "Prompt tokens found in the prefix cache.",
    "spec_decode_num_draft_tokens": "Tokens that were drafted.",
    "spec_decode_num_accepted_tokens": "Drafted tokens that the model accepted.",
    "structured_output_forced_tokens": "Tokens that grammars forced, without a step for each.",
    "requests_refused": "Requests refused because the waiting queue was full.",
}

_HISTOGRAMS = {
    "time_to_first_token_seconds": ("time", "Arrival to first token."),
    "inter_token_latency_seconds": ("time", "Between two outputs of a sequence."),
    "e2e_request_latency_seconds": ("time", "Arrival to end."),
    "request_queue_time_seconds": ("time", "In the waiting queue."),
    "request_prefill_time_seconds": ("time", "First scheduling to first token."),
    "request_decode_time_seconds": ("time", "First token to last token."),
    "request_inference_time_seconds": ("time", "First scheduling to last token."),
    "request_time_per_output_token_seconds": ("time", "Mean time per token after the first."),
    "request_prompt_tokens": ("tokens", "Prompt tokens of a sequence."),
    "request_generation_tokens": ("tokens", "Generated tokens of a sequence."),
    "request_max_num_generation_tokens": ("tokens", "Tokens of a request's longest sequence."),
    "request_prefill_kv_computed_tokens": ("tokens", "Prompt tokens that were not in the cache."),
    "request_params_max_tokens": ("tokens", "max_tokens of a sequence."),
    "request_params_n": ("n", "n of a request."),
    "iteration_tokens_total": ("step", "Tokens computed in one step."),
}


def _one_two_five(limit: int) -> list[float]:
    bounds = [step * 10**power for power in range(len(str(limit))) for step in (1, 2, 5)]
    return [bound for bound in bounds if bound <= limit]


def _powers_of_two(limit: int) -> list[float]:
    return [1 << power for power in range(limit.bit_length())]
