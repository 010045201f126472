"""EngineCore: one scheduler and one executor, stepped with some steps in flight."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from octavo.config.files import model_files
from octavo.config.octavo_config import OctavoConfig
from octavo.core.pacing import Pacer, StepPacer, Unpaced
from octavo.core.request import Request
from octavo.core.scheduler import Scheduler
from octavo.engine.grammars import CoreGrammars
from octavo.engine.kv_size import size_kv_cache
from octavo.engine.plan import Plan, make_plan
from octavo.engine.plan_check import compare, comparison_table
from octavo.engine.profile import CoreProfiler, describe_schedule, describe_step_argument
from octavo.engine.serial import EngineFacts
from octavo.executor.interface import Executor, StepHandle, find_executor
from octavo.types.engine_output import EngineCoreOutput, EngineCoreOutputs, FinishReason
from octavo.types.request import EngineCoreRequest, FinishRequest
from octavo.types.runner_output import ModelRunnerOutput
from octavo.types.scheduler_output import SchedulerOutput
from octavo.utils.logging import get_logger
from octavo.utils.phases import Phases
from octavo.utils.profiling import HostSpans

logger = get_logger(__name__)

MAX_LISTED = 8  # new requests named in the summary of a step


class EngineCore:
    """Sizes the KV cache, then turns requests into outputs, step by step.

    An exception that belongs to one request ends that request. One from the executor is a fault
    of the device: a summary of the step, without prompts, goes to the log and it passes through.
    """

    def __init__(
        self, config: OctavoConfig, executor: Executor, kv_limit: int, later_bytes: int = 0
    ) -> None:
        """`kv_limit`: bytes planned for the KV cache; it gets less if the device has less.

        `later_bytes`: what the device will need besides that is not allocated when it measures
        what it has.
        """
        self._executor = executor
        self._max_concurrent_steps = config.scheduler.max_concurrent_steps
        self._in_flight: deque[tuple[SchedulerOutput, StepHandle]] = deque()
        self._ended: list[tuple[int, EngineCoreOutput]] = []  # outside steps, by client index
        self._unsampled: SchedulerOutput | None = None  # the step in flight that lacks its masks
        self._stats_due = False
        kv_config, max_model_len = size_kv_cache(config, executor, kv_limit, later_bytes)
        self._grammars = CoreGrammars(config, max_model_len)
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
            share_prefixes=config.shares_prefixes,
            pacer=_pacer(config),
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
        profiler = CoreProfiler(executor, self._watch)
        self._utilities: dict[str, Callable[..., Any]] = {
            "start_profile": profiler.start,
            "stop_profile": profiler.stop,
            "reset_prefix_cache": self._scheduler.reset_prefix_cache,
            "get_request_counts": self._scheduler.get_request_counts,
            "collective_rpc": lambda method, args=(): executor.collective_rpc(method, tuple(args)),
        }

    def has_work(self) -> bool:
        """Whether `step` has anything to do."""
        busy = self._in_flight or self._ended or self._stats_due or self._grammars.has_news
        return bool(busy) or self._scheduler.has_requests()

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, in any thread, when there is work that came about by itself.

        The caller sleeps now and then: what requests may need later is prepared from here on.
        """
        self._grammars.wake_by(wake)
        self._grammars.prepare()

    def wait(self) -> None:
        """Sleep while all there is to do is to wait for a grammar."""
        if not self.has_work():
            self._grammars.wait()

    def add_request(self, request: EngineCoreRequest) -> None:
        """Queue a request; one that can't be queued ends with "error" in the next outputs."""
        if request.sampling_params.structured_outputs is not None:
            self._grammars.hold(request)
        else:
            self._queue(request)

    def abort_requests(self, request_ids: list[str]) -> None:
        """Drop requests and whatever they would still produce; unknown ids are ignored."""
        self._scheduler.abort_requests(request_ids)
        self._grammars.forget(request_ids)
        self._stats_due = True

    def finish_requests(self, finishes: list[FinishRequest]) -> None:
        """End requests where the front end says they ended; unknown ids are ignored."""
        for finish in finishes:
            self._scheduler.finish_request(finish)
        self._grammars.forget([finish.request_id for finish in finishes])
        self._stats_due = True

    def step(self) -> dict[int, EngineCoreOutputs]:
        """Launch a step if one more may be in flight, else wait for the oldest.

        Returns news by client index; {} when a step was launched and another may follow. A step
        with grammar rows is launched as far as its hidden states; its sampling follows as soon as
        the tokens of the step before it are known, and only then another step.
        """
        self._queue_compiled()
        launched = self._launch()
        more = len(self._in_flight) < self._max_concurrent_steps and self._unsampled is None
        if launched and more:
            return {}
        if not self._in_flight and self._scheduler.has_unfinished_requests():
            raise RuntimeError("no request can be scheduled although no step is in flight")
        outputs = self._finish_oldest() if self._in_flight else {}
        for client_index, ended in self._ended:
            outputs.setdefault(client_index, EngineCoreOutputs()).outputs.append(ended)
        self._ended.clear()
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

    def _queue(self, request: EngineCoreRequest) -> None:
        try:
            self._scheduler.add_request(request)
        except Exception as error:
            logger.error("request %s could not be queued: %s", request.request_id, error)
            self._tell_end(request, FinishReason.ERROR, f"{type(error).__name__}: {error}")
            self._grammars.forget([request.request_id])

    def _queue_compiled(self) -> None:
        """Let requests run whose grammars are ready."""
        if not self._grammars.num_held:
            return
        for request, error in self._grammars.take():
            if error is None:
                self._queue(request)
            else:
                logger.info("request %s: its grammar can't be used", request.request_id)
                param = error.param or "structured_outputs"
                self._tell_end(request, FinishReason.ERROR, str(error), param)

    def _tell_end(
        self,
        request: EngineCoreRequest | Request,
        reason: FinishReason,
        error: str | None,
        param: str | None = None,
    ) -> None:
        output = EngineCoreOutput(
            request.request_id, finish_reason=reason, stop_reason=error, error_param=param
        )
        self._ended.append((request.client_index, output))

    def _launch(self) -> bool:
        full = len(self._in_flight) == self._max_concurrent_steps or self._unsampled is not None
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
        if step.grammar_rows:
            self._unsampled = step
            self._sample_if_known()
        return True

    def _sample_if_known(self) -> None:
        """Have the step that lacks its masks sampled, once no step before it is in flight."""
        step = self._unsampled
        if step is None or self._in_flight[0][0] is not step:
            return
        self._unsampled = None
        requests = self._scheduler.requests_of(step)
        masks, ended = self._grammars.masks(step, requests)
        try:
            self._executor.sample_tokens(masks)
        except Exception:
            logger.critical("the device failed in %s", describe_step(step))
            raise
        by_id = {request.request_id: request for request in requests if request is not None}
        for name, reason, error, param in ended:
            self._tell_end(by_id[name], reason, error, param)
            self._scheduler.finish_request(FinishRequest(name, reason))
            self._grammars.forget([name])
        for row, tokens in self._grammars.forced_runs(masks, requests):
            self._scheduler.force(step, row, tokens)

    def _finish_oldest(self) -> dict[int, EngineCoreOutputs]:
        step, handle = self._in_flight.popleft()
        result = self._await_results(step, handle)
        if step.grammar_rows:
            requests = self._scheduler.requests_of(step)
            for row in self._grammars.misled(step, requests, result.sampled_token_ids):
                self._scheduler.retry(step, row, result)
        outputs = self._scheduler.update_from_output(step, result)
        if self._grammars.num_running:
            self._grammars.forget(
                output.request_id
                for news in outputs.values()
                for output in news.outputs
                if output.finish_reason is not None
            )
        self._sample_if_known()
        return outputs

    def _await_results(self, step: SchedulerOutput, handle: StepHandle) -> ModelRunnerOutput:
        try:
            return handle.result()
        except Exception:
            logger.critical("the device failed in %s", describe_step(step))
            raise

    def _watch(self, spans: HostSpans) -> None:
        spans.watch(self._scheduler, "schedule", "schedule", describe_schedule)
        spans.watch(self._executor, "execute_model", "launch", describe_step_argument)
        spans.watch(self, "_await_results", "results", describe_step_argument)
        spans.watch(self._scheduler, "update_from_output", "update", describe_step_argument)

    def _add_stats(self, outputs: dict[int, EngineCoreOutputs]) -> None:
        """Statistics go to the first front end, also when nothing else does."""
        self._stats_due = False
        stats = self._scheduler.make_stats()
        if stats is not None:
            stats.num_waiting += self._grammars.num_held
            outputs.setdefault(0, EngineCoreOutputs()).scheduler_stats = stats
        now = time.monotonic()
        for output in outputs.values():
            output.timestamp = now


def build_core(config: OctavoConfig, phases: Phases | None = None) -> EngineCore:
    """Plan the memory, load the model, make the core.

    `phases` has counted what came before. Raises ConfigError, before any weight is read, for what
    can't fit.
    """
    phases = phases or Phases()
    with phases("plan"):
        plan = _plan(config)
    executor = find_executor(config.parallel.distributed_executor_backend)(plan.config)
    try:
        core = EngineCore(plan.config, executor, plan.kv_cache_bytes, plan.later_bytes)
    except BaseException:
        executor.shutdown()
        raise
    lines = compare(plan, core.facts.kv_cache_bytes, executor.memory_lines())
    if lines:
        logger.info("memory, planned and measured:\n%s", comparison_table(lines))
    phases.add(executor.start_up_phases())
    core.facts = msgspec.structs.replace(core.facts, startup=phases.complete())
    return core


def _plan(config: OctavoConfig) -> Plan:
    headers = None
    if config.load.load_format != "dummy":
        headers = model_files(config).tensor_headers()
    plan = make_plan(config, headers)
    logger.info("memory plan:\n%s", plan.table())
    for note in plan.config.notes[len(config.notes) :]:
        logger.info(note)
    return plan


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


def _pacer(config: OctavoConfig) -> Pacer:
    target = config.scheduler.itl_target_ms
    return StepPacer(target / 1e3, time.monotonic) if target else Unpaced()


def _model_hash_key(config: OctavoConfig) -> str:
    """What makes cached keys and values comparable: the weights and the numbers they run in."""
    model = config.model
    weights = f"dummy:{model.seed}" if config.load.load_format == "dummy" else model.revision
    return "|".join(map(str, (model.model, weights, model.dtype, config.cache.kv_cache_dtype)))
