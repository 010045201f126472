"""AsyncLLM: the engine of a server, one stream of outputs per request on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from octavo.config.engine_args import EngineArgs
from octavo.config.octavo_config import OctavoConfig
from octavo.engine.collector import OutputTap, RequestOutputCollector
from octavo.engine.core_client import AsyncMPClient, CoreConnection
from octavo.engine.front_end import FrontEnd
from octavo.engine.grammar_check import GrammarCheck
from octavo.engine.input_processor import LONG_TEXT
from octavo.engine.metric_page import MetricPage
from octavo.engine.metrics import EngineMetrics
from octavo.engine.pooling_state import PooledOutput, PoolingFuture
from octavo.engine.pooling_tokens import PoolingPrompt
from octavo.engine.prompts import ParsedPrompt, Prompt, parse_prompt
from octavo.engine.stat_log import INTERVAL
from octavo.engine.tracing import NoSpan, make_tracer, open_span
from octavo.structured_output.interface import GrammarError
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.engine_output import EngineCoreOutputs
from octavo.types.errors import (
    EngineDeadError,
    EngineStalledError,
    GenerationError,
    QueueFullError,
    RequestError,
)
from octavo.types.outputs import RequestOutput
from octavo.types.pooling_params import PoolingParams
from octavo.types.request import LoRARequest
from octavo.types.sampling_params import SamplingParams, StructuredOutputsParams
from octavo.utils import envs
from octavo.utils.logging import get_logger
from octavo.utils.profiling import HostSpans

logger = get_logger(__name__)

OUTPUT_CHUNK = 128  # outputs processed before other tasks get their turn


class AsyncLLM:
    """Runs a core in its own process; every method belongs to one event loop.

    One task takes the core's outputs, detokenizes them and fills the readers' collectors; when
    the core dies it ends every stream with EngineDeadError.
    """

    def __init__(
        self,
        config: OctavoConfig,
        *,
        clamp_max_tokens: bool = False,
        core: Callable[[], CoreConnection] | None = None,
        client_index: int = 0,
        page: MetricPage | None = None,
        num_front_ends: int = 1,
    ) -> None:
        """Starts a core, or joins the one that `core` reaches as its front end `client_index`.

        Then `page` is where the front ends share their metrics, and each of the
        `num_front_ends` takes its part of the waiting queue.
        """
        self._tracer = make_tracer(config.observability.otlp_traces_endpoint)
        self._num_front_ends = num_front_ends
        self._front_end = FrontEnd(
            config,
            lambda config: AsyncMPClient(config, None if core is None else core()),
            clamp_max_tokens=clamp_max_tokens,
            client_index=client_index,
            page=page,
        )
        self._client: AsyncMPClient = self._front_end.client
        self._client.on_cancel = self._abort_now
        self._inputs = self._front_end.inputs
        self._outputs = self._front_end.outputs
        self.config: OctavoConfig = self._front_end.config
        self.tokenizer: Tokenizer | None = self._front_end.tokenizer
        self.metrics: EngineMetrics = self._front_end.metrics
        self._model_name = self.config.model.served_model_name[0]
        self._spans = HostSpans()
        self._long_texts = ThreadPoolExecutor(1, thread_name_prefix="octavo-tokenize")
        self._grammars = GrammarCheck(self.config)
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: str | None = None
        self._outputs_in_turn = 0  # processed since other tasks last had their turn
        self._busy_since = time.monotonic()  # when the first of the requests in flight came

    @classmethod
    def from_engine_args(cls, args: EngineArgs) -> Self:
        """Resolve the arguments, with a server's defaults, and start."""
        return cls(args.create_engine_config(usage="server"))

    @property
    def errored(self) -> bool:
        """Whether the core is known to have died."""
        return self._failure is not None or self._client.engine_dead

    @property
    def core_pid(self) -> int:
        """The process id of the core."""
        return self._client.core_pid

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams,
        request_id: str,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
        lora_request: LoRARequest | None = None,
        trace_headers: dict[str, str] | None = None,
        tap: OutputTap | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """The outputs of one request, but for those that go by `tap`.

        Leaving the generator early aborts the request.
        Raises RequestError and QueueFullError before anything runs, EngineDeadError at any
        moment, and GenerationError after the last output of a request that failed.
        """
        parsed = parse_prompt(prompt, cache_salt)
        self._check_admission(sampling_params.n)
        token_ids = await self._tokenize(parsed)
        request = self._inputs.make_request(
            request_id,
            parsed,
            token_ids,
            sampling_params,
            priority=priority,
            lora_request=lora_request,
            trace_headers=trace_headers,
        )
        if request.sampling_params.structured_outputs is not None:
            await self._try_grammar(request.sampling_params.structured_outputs)
        self._check_admission(sampling_params.n)
        self._start_tasks()
        if not self._outputs.num_unfinished:
            self._busy_since = time.monotonic()
        span = open_span(self._tracer, request_id, self._model_name, request)
        # A span has to see every output.
        tap = tap if isinstance(span, NoSpan) else None
        collector = RequestOutputCollector(request.sampling_params.output_kind, tap)
        children = self._outputs.add_request(request_id, request, parsed.text, collector)
        if self.config.observability.enable_log_requests:
            logger.info("request %s: %r", request_id, sampling_params)
        finished = False
        try:
            self._client.add_requests(children)
            while not finished:
                output = await collector.get()
                finished = output.finished
                span.note(output)
                yield output
            if output.error is not None:
                raise GenerationError(output.error, output.error_param)
        finally:
            if not finished:
                self._leave([child.request_id for child in children])
            span.end()

    async def encode(
        self,
        prompt: Prompt | PoolingPrompt,
        pooling_params: PoolingParams,
        request_id: str,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
        trace_headers: dict[str, str] | None = None,
    ) -> AsyncGenerator[PooledOutput, None]:
        """The one output of a request that is pooled; leaving the generator early aborts it.

        Raises RequestError and QueueFullError before anything runs, EngineDeadError at any
        moment, and GenerationError for a request that failed.
        """
        self._check_admission(1)
        pooling = self._front_end.pooling
        if isinstance(prompt, str) and len(prompt) > LONG_TEXT:
            loop = asyncio.get_running_loop()
            prompt = await loop.run_in_executor(
                self._long_texts, pooling.prompt, prompt, pooling_params
            )
        request = pooling.make_request(
            request_id,
            pooling.prompt(prompt, pooling_params),
            pooling_params,
            priority=priority,
            cache_salt=cache_salt,
            trace_headers=trace_headers,
        )
        self._start_tasks()
        if not self._outputs.num_unfinished:
            self._busy_since = time.monotonic()
        reader = PoolingFuture()
        self._outputs.add_pooling_request(request_id, request, reader)
        if self.config.observability.enable_log_requests:
            logger.info("request %s: %r", request_id, pooling_params)
        try:
            self._client.add_requests([request])
            yield await reader.get()
        finally:
            self._leave([request.request_id])

    async def abort(self, request_ids: str | Iterable[str]) -> None:
        """End every request that goes by these ids; their streams end with "abort".

        Also requests of the other front ends of this core.
        """
        names = [request_ids] if isinstance(request_ids, str) else list(request_ids)
        self._start_tasks()
        self._abort_now(names)
        if self._num_front_ends > 1:
            self._client.cancel_requests(names)

    async def check_grammar(self, spec: StructuredOutputsParams) -> None:
        """Raise RequestError, or QueueFullError, if requests with this constraint are not served.

        The error's `param` is "structured_outputs" or one of its fields.
        """
        await self._try_grammar(self._inputs.structure(spec))

    async def check_health(self) -> None:
        """Raise EngineDeadError, or EngineStalledError when a step does not end.

        Attaches the engine to the running loop: from then on a death is noticed by itself.
        """
        self._start_tasks()
        self._raise_if_failed()
        self._client.check_health()
        limit = envs.stall_timeout()
        silence = time.monotonic() - max(self._client.last_heard, self._busy_since)
        if self._outputs.num_unfinished and silence > limit:
            raise EngineStalledError(
                f"nothing was heard from the engine core for {silence:.0f} s while requests run; "
                f"the limit is OCTAVO_STALL_TIMEOUT_S={limit:g}"
            )

    async def reset_prefix_cache(self) -> bool:
        """Forget every cached prefix; False while requests hold blocks."""
        self._start_tasks()
        return bool(await self._client.call_utility("reset_prefix_cache"))

    async def start_profile(self) -> None:
        """Record what front end, core and device do in the steps from now on.

        Raises OctavoError if that is being done already.
        """
        self._start_tasks()
        await self._client.call_utility("start_profile")
        self._spans.watch(self._outputs, "process", "process outputs")

    async def stop_profile(self, folder: str = ".") -> str:
        """End the recording; returns the path of the trace, for ui.perfetto.dev."""
        self._start_tasks()
        spans = self._spans.stop()
        return str(await self._client.call_utility("stop_profile", folder, spans))

    def shutdown(self) -> None:
        """End the core and every stream; safe to call twice."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self._client.shutdown()
        self._long_texts.shutdown(wait=False, cancel_futures=True)
        self._grammars.shutdown()
        self._tracer.shutdown()
        self._fail("the engine was shut down")

    def _abort_now(self, request_ids: list[str]) -> None:
        internal = [name for id_ in request_ids for name in self._outputs.internal_ids(id_)]
        aborted, _ = self._outputs.abort(internal)
        if aborted:
            with contextlib.suppress(EngineDeadError):
                self._client.abort_requests(aborted)

    def core_died(self, reason: str) -> None:
        """Another process has found the core dead."""
        self._fail(reason)

    def _check_admission(self, n: int) -> None:
        self._raise_if_failed()
        limits = self.config.scheduler
        if limits.max_waiting_requests is None:
            return
        room = -(-(limits.max_num_seqs + limits.max_waiting_requests) // self._num_front_ends)
        if self._outputs.num_unfinished + n > room:
            self.metrics.count_refused()
            raise QueueFullError(
                f"{self._outputs.num_unfinished} sequences are running or waiting and {n} more do "
                f"not fit (max_num_seqs={limits.max_num_seqs}, "
                f"max_waiting_requests={limits.max_waiting_requests}); try again later"
            )

    async def _try_grammar(self, spec: StructuredOutputsParams) -> None:
        try:
            await self._grammars.check(spec)
        except GrammarError as error:
            field = f".{error.param}" if error.param else ""
            raise RequestError(
                f"structured_outputs.{error}" if field else str(error),
                f"structured_outputs{field}",
            ) from None

    async def _tokenize(self, prompt: ParsedPrompt) -> list[int]:
        if prompt.token_ids is None and prompt.text is not None and len(prompt.text) > LONG_TEXT:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._long_texts, self._inputs.tokenize, prompt)
        return self._inputs.tokenize(prompt)

    def _leave(self, internal_ids: list[str]) -> None:
        """The reader of these sequences is gone."""
        dropped = self._outputs.drop(internal_ids)
        if dropped:
            with contextlib.suppress(EngineDeadError):
                self._client.abort_requests(dropped)

    def _start_tasks(self) -> None:
        # A loop that ends takes its tasks with it; the next one gets its own.
        if self._tasks and not self._tasks[0].done():
            return
        self._tasks = [asyncio.create_task(self._run_outputs(), name="octavo-outputs")]
        # Of several front ends none speaks for all.
        if self._num_front_ends == 1 and not self.config.observability.disable_log_stats:
            self._tasks.append(asyncio.create_task(self._run_stat_log(), name="octavo-stat-log"))

    async def _run_outputs(self) -> None:
        try:
            while True:
                await self._process(await self._client.get_output())
        except EngineDeadError as error:
            self._fail(str(error))
        except Exception as error:
            logger.exception("the output task has failed")
            self._fail(f"the output task has failed: {error}")

    async def _process(self, news: EngineCoreOutputs) -> None:
        outputs = news.outputs
        for begin in range(0, len(outputs), OUTPUT_CHUNK):
            chunk = outputs[begin : begin + OUTPUT_CHUNK]
            # Messages may be waiting in a row, and taking one that is there does not yield.
            self._outputs_in_turn += len(chunk)
            if self._outputs_in_turn > OUTPUT_CHUNK:
                await asyncio.sleep(0)
                self._outputs_in_turn = len(chunk)
            finishes = self._outputs.process(chunk, news.timestamp).finishes
            if finishes:
                self._client.finish_requests(finishes)
        stats = self._outputs.take_stats()
        if not self.config.observability.disable_log_stats:
            self.metrics.record(news.scheduler_stats, stats)

    async def _run_stat_log(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            self._front_end.stat_log.log()

    def _fail(self, message: str) -> None:
        self._failure = self._failure or message
        self._outputs.fail_all(self._failure)

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise EngineDeadError(self._failure)
