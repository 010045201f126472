"""EngineCore: one scheduler and one executor, stepped with some steps in flight."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from octavo.checkpoints.locate import find_model
from octavo.config.octavo_config import OctavoConfig
from octavo.core.kv.planning import max_model_len_that_fits, plan_kv_cache
from octavo.core.scheduler import Scheduler
from octavo.engine.plan import make_plan
from octavo.engine.serial import EngineFacts
from octavo.executor.interface import Executor, StepHandle, find_executor
from octavo.types.engine_output import EngineCoreOutput, EngineCoreOutputs, FinishReason
from octavo.types.kv_spec import KVCacheConfig
from octavo.types.request import EngineCoreRequest, FinishRequest
from octavo.types.runner_output import ModelRunnerOutput
from octavo.types.scheduler_output import SchedulerOutput
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

MAX_LISTED = 8  # new requests named in the summary of a step


class EngineCore:
    """Sizes the KV cache, then turns requests into outputs, step by step.

    An exception that belongs to one request ends that request. One from the executor is a fault
    of the device: a summary of the step, without prompts, goes to the log and it passes through.
    """

    def __init__(self, config: OctavoConfig, executor: Executor, kv_limit: int) -> None:
        """`kv_limit`: bytes planned for the KV cache; it gets less if the device has less."""
        self._executor = executor
        self._max_concurrent_steps = config.scheduler.max_concurrent_steps
        self._in_flight: deque[tuple[SchedulerOutput, StepHandle]] = deque()
        self._rejected: list[tuple[int, EngineCoreOutput]] = []  # with their client's index
        self._stats_due = False
        kv_config, max_model_len = _size_kv_cache(config, executor, kv_limit)
        executor.initialize_kv_cache(kv_config)
        self._scheduler = Scheduler(
            max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
            max_num_seqs=config.scheduler.max_num_seqs,
            num_slots=config.scheduler.num_slots,
            max_model_len=max_model_len,
            max_concurrent_steps=self._max_concurrent_steps,
            policy=config.scheduler.scheduling_policy,
            long_prefill_token_threshold=config.scheduler.long_prefill_token_threshold,
            enable_chunked_prefill=config.scheduler.enable_chunked_prefill,
            enable_prefix_caching=config.cache.enable_prefix_caching,
            hash_algo=config.cache.prefix_caching_hash_algo,
            model_hash_key=_model_hash_key(config),
            vocab_size=config.model.vocab_size,
            kv_cache_config=kv_config,
            log_stats=not config.observability.disable_log_stats,
        )
        self.facts = EngineFacts(
            num_blocks=kv_config.num_blocks,
            block_size=config.cache.block_size,
            kv_cache_bytes=kv_config.total_bytes,
            max_model_len=max_model_len,
            min_reusable_prefix=self._scheduler.prefix_hit_granularity,
        )
        if self.facts.min_reusable_prefix:
            logger.info(
                "prefix caching reuses equal beginnings of %d tokens or more",
                self.facts.min_reusable_prefix,
            )
        self._utilities: dict[str, Callable[..., Any]] = {
            "reset_prefix_cache": self._scheduler.reset_prefix_cache,
            "get_request_counts": self._scheduler.get_request_counts,
            "collective_rpc": lambda method, args=(): executor.collective_rpc(method, tuple(args)),
        }

    def has_work(self) -> bool:
        """Whether `step` has anything to do."""
        busy = self._in_flight or self._rejected or self._stats_due
        return bool(busy) or self._scheduler.has_requests()

    def add_request(self, request: EngineCoreRequest) -> None:
        """Queue a request; one that can't be queued ends with "error" in the next outputs."""
        try:
            self._scheduler.add_request(request)
        except Exception as error:
            logger.error("request %s could not be queued: %s", request.request_id, error)
            output = EngineCoreOutput(
                request.request_id,
                finish_reason=FinishReason.ERROR,
                stop_reason=f"{type(error).__name__}: {error}",
            )
            self._rejected.append((request.client_index, output))

    def abort_requests(self, request_ids: list[str]) -> None:
        """Drop requests and whatever they would still produce; unknown ids are ignored."""
        self._scheduler.abort_requests(request_ids)
        self._stats_due = True

    def finish_requests(self, finishes: list[FinishRequest]) -> None:
        """End requests where the front end says they ended; unknown ids are ignored."""
        for finish in finishes:
            self._scheduler.finish_request(finish)
        self._stats_due = True

    def step(self) -> dict[int, EngineCoreOutputs]:
        """Launch a step if one more may be in flight, else wait for the oldest.

        Returns news by client index; {} when a step was launched and another may follow.
        """
        launched = self._launch()
        if launched and len(self._in_flight) < self._max_concurrent_steps:
            return {}
        if not self._in_flight and self._scheduler.has_unfinished_requests():
            raise RuntimeError("no request can be scheduled although no step is in flight")
        outputs = self._finish_oldest() if self._in_flight else {}
        for client_index, rejected in self._rejected:
            outputs.setdefault(client_index, EngineCoreOutputs()).outputs.append(rejected)
        self._rejected.clear()
        self._add_stats(outputs)
        return outputs

    def call_utility(self, method: str, args: list[Any]) -> Any:
        """Call a utility by name; it may raise anything, which harms nobody else."""
        utility = self._utilities.get(method)
        if utility is None:
            raise ValueError(f"no utility {method!r}; there are: {', '.join(self._utilities)}")
        return utility(*args)

    def shutdown(self) -> None:
        """Stop the workers; safe to call twice."""
        self._executor.shutdown()

    def _launch(self) -> bool:
        full = len(self._in_flight) == self._max_concurrent_steps
        if full or not self._scheduler.has_unfinished_requests():
            return False
        step = self._scheduler.schedule()
        if step.total_num_scheduled_tokens == 0:
            return False
        try:
            handle = self._executor.execute_model(step)
        except Exception:
            logger.critical("the device failed in %s", describe_step(step))
            raise
        self._in_flight.append((step, handle))
        return True

    def _finish_oldest(self) -> dict[int, EngineCoreOutputs]:
        step, handle = self._in_flight.popleft()
        try:
            result: ModelRunnerOutput = handle.result()
        except Exception:
            logger.critical("the device failed in %s", describe_step(step))
            raise
        return self._scheduler.update_from_output(step, result)

    def _add_stats(self, outputs: dict[int, EngineCoreOutputs]) -> None:
        """Statistics go to the first front end, also when nothing else does."""
        self._stats_due = False
        stats = self._scheduler.make_stats()
        if stats is not None:
            outputs.setdefault(0, EngineCoreOutputs()).scheduler_stats = stats
        now = time.monotonic()
        for output in outputs.values():
            output.timestamp = now


def build_core(config: OctavoConfig) -> EngineCore:
    """Plan the memory, load the model, make the core.

    Raises ConfigError, before any weight is read, for what can't fit.
    """
    headers = None
    if config.load.load_format != "dummy":
        load = config.load
        files = find_model(
            config.model.model,
            config.model.revision,
            load.download_dir,
            ignore_patterns=load.ignore_patterns,
        )
        headers = files.tensor_headers()
    plan = make_plan(config, headers)
    logger.info("memory plan:\n%s", plan.table())
    for note in plan.config.notes[len(config.notes) :]:
        logger.info(note)
    executor = find_executor(config.parallel.distributed_executor_backend)(plan.config)
    try:
        return EngineCore(plan.config, executor, plan.kv_cache_bytes)
    except BaseException:
        executor.shutdown()
        raise


def describe_step(step: SchedulerOutput) -> str:
    """A step for a crash report: sizes and ids, no prompts."""
    new = ", ".join(
        f"{request.request_id} ({len(request.token_ids)} tokens, "
        f"{request.num_computed_tokens} cached)"
        for request in step.new_requests[:MAX_LISTED]
    )
    return (
        f"step {step.step_id}: {len(step.slots)} rows ({step.num_decode_rows} decode), "
        f"{step.total_num_scheduled_tokens} tokens, largest row "
        f"{max(step.num_scheduled_tokens, default=0)}, "
        f"{len(step.new_requests)} new requests{': ' if new else ''}{new}"
    )


def _size_kv_cache(
    config: OctavoConfig, executor: Executor, kv_limit: int
) -> tuple[KVCacheConfig, int]:
    """(the cache, the longest request that is served)."""
    specs = executor.kv_cache_specs()
    available = min(kv_limit, executor.available_kv_memory())
    if available < kv_limit:
        logger.warning(
            "the device has %d MiB for the KV cache, %d MiB were planned",
            available >> 20,
            kv_limit >> 20,
        )
    max_model_len = config.model.max_model_len
    max_tokens_ahead = config.scheduler.max_tokens_ahead
    blocks = config.cache.num_gpu_blocks_override
    if config.model.fit_max_model_len:
        fitting = max_model_len_that_fits(
            specs,
            available,
            max_tokens_ahead=max_tokens_ahead,
            limit=max_model_len,
            num_blocks_override=blocks,
        )
        max_model_len = fitting or max_model_len
    kv_config = plan_kv_cache(
        specs,
        available,
        max_model_len=max_model_len,
        max_tokens_ahead=max_tokens_ahead,
        num_blocks_override=blocks,
    )
    return kv_config, max_model_len


def _model_hash_key(config: OctavoConfig) -> str:
    """What makes cached keys and values comparable: the weights and the numbers they run in."""
    model = config.model
    weights = f"dummy:{model.seed}" if config.load.load_format == "dummy" else model.revision
    return "|".join(map(str, (model.model, weights, model.dtype, config.cache.kv_cache_dtype)))
