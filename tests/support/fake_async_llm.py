"""AsyncLLM without a core: real admission, detokenizing and log-probabilities, scripted tokens.

By default a request is answered with SCRIPT, again and again; choice k of n starts k words later.
A request changes its own course by `vllm_xargs` (SamplingParams.extra_args):
    text: "..."     what to answer; the request stops at its end
    error_at: k     the core reports an error instead of the k-th token
    die_at: k       the core dies instead of producing the k-th token
    sleep: s        seconds between two tokens
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from typing import Any

from octavo.checkpoints.locate import find_model
from octavo.config.octavo_config import OctavoConfig
from octavo.engine.collector import RequestOutputCollector
from octavo.engine.input_processor import InputProcessor, RequestLimits
from octavo.engine.metrics import EngineMetrics
from octavo.engine.output_processor import OutputProcessor
from octavo.engine.prompts import parse_prompt
from octavo.engine.serial import EngineFacts
from octavo.structured_output.interface import BACKENDS, GrammarError
from octavo.tokenizers.tokenizer import Tokenizer, load_tokenizer
from octavo.types.engine_output import EngineCoreOutput, FinishReason, TokenLogprobs
from octavo.types.errors import (
    EngineDeadError,
    GenerationError,
    OctavoError,
    QueueFullError,
    RequestError,
)
from octavo.types.request import EngineCoreRequest
from octavo.types.sampling_params import SamplingParams, StructuredOutputsParams
from octavo.types.stats import SchedulerStats
from support.tiny import fake_config

SCRIPT = "The quick brown fox jumps over the lazy dog. Größe ist 東京 👨‍👩‍👧 end. "


@functools.cache
def _default_config() -> OctavoConfig:
    return fake_config()


@functools.cache
def _tokenizer(model: str) -> Tokenizer:
    return load_tokenizer(find_model(model))


class FakeAsyncLLM:
    """See the module. `max_running` is where admission says that the queue is full."""

    def __init__(
        self,
        config: OctavoConfig | None = None,
        *,
        clamp_max_tokens: bool = False,
        max_running: int = 10_000,
        sleep: float = 0.0,
    ) -> None:
        self.config = config or _default_config()
        model = self.config.model
        self.tokenizer: Tokenizer | None = (
            None if model.skip_tokenizer_init else _tokenizer(model.model)
        )
        facts = EngineFacts(
            num_blocks=512,
            block_size=16,
            min_reusable_prefix=16,
            kv_cache_bytes=1 << 20,
            max_model_len=model.max_model_len,
        )
        self.metrics = EngineMetrics(self.config, facts)
        limits = RequestLimits.of(self.config, clamp_max_tokens=clamp_max_tokens)
        self._inputs = InputProcessor(limits, self.tokenizer, 0)
        self._outputs = OutputProcessor(self.tokenizer, 1)
        self._max_running = max_running
        self._sleep = sleep
        self._failure: str | None = None
        self.is_recording = False  # a trace
        self.script: str | None = None  # what every request is answered with, then ends
        self.aborted: list[str] = []
        self.seen: list[tuple[Any, SamplingParams, dict[str, Any]]] = []

    @property
    def errored(self) -> bool:
        return self._failure is not None

    @property
    def num_running(self) -> int:
        return self._outputs.num_unfinished

    def die(self, reason: str = "killed by the test") -> None:
        self._failure = reason
        self._outputs.fail_all(reason)

    async def check_health(self) -> None:
        if self._failure is not None:
            raise EngineDeadError(self._failure)

    async def check_grammar(self, spec: StructuredOutputsParams) -> None:
        try:
            BACKENDS.get("guidance").check(self._inputs.structure(spec))
        except GrammarError as error:
            raise RequestError(str(error), f"structured_outputs.{error.param}") from None

    async def reset_prefix_cache(self) -> bool:
        return self.num_running == 0

    async def start_profile(self) -> None:
        if self.is_recording:
            raise OctavoError("a trace is being recorded already")
        self.is_recording = True

    async def stop_profile(self, folder: str) -> str:
        if not self.is_recording:
            raise OctavoError("no trace is being recorded")
        self.is_recording = False
        return f"{folder}/trace"

    async def abort(self, request_ids: str | list[str]) -> None:
        names = [request_ids] if isinstance(request_ids, str) else request_ids
        self._outputs.abort([one for name in names for one in self._outputs.internal_ids(name)])

    def shutdown(self) -> None:
        self.die("the engine was shut down")

    async def generate(
        self,
        prompt: Any,
        sampling_params: SamplingParams,
        request_id: str,
        **options: Any,
    ):
        await self.check_health()
        self.seen.append((prompt, sampling_params, options))
        parsed = parse_prompt(prompt, options.get("cache_salt"))
        request = self._inputs.make_request(
            request_id,
            parsed,
            self._inputs.tokenize(parsed),
            sampling_params,
            priority=options.get("priority", 0),
        )
        if sampling_params.structured_outputs is not None:
            await self.check_grammar(sampling_params.structured_outputs)
        if self.num_running + sampling_params.n > self._max_running:
            raise QueueFullError("the queue is full; try again later")
        collector = RequestOutputCollector(sampling_params.output_kind, options.get("tap"))
        children = self._outputs.add_request(request_id, request, parsed.text, collector)
        self._note()
        tasks = [asyncio.create_task(self._produce(i, child)) for i, child in enumerate(children)]
        finished = False
        try:
            while not finished:
                output = await collector.get()
                finished = output.finished
                yield output
            if output.error is not None:
                raise GenerationError(output.error)
        finally:
            for task in tasks:
                task.cancel()
            if not finished:
                self.aborted.append(request_id)
                self._outputs.drop([child.request_id for child in children])
            self._note()

    async def encode(self, *args: Any, **options: Any):
        raise RequestError("this model generates text and gives no vectors", "model")
        yield  # an asynchronous generator, as AsyncLLM's is

    def _note(self) -> None:
        self.metrics.record(
            SchedulerStats(num_running=self.num_running), self._outputs.take_stats()
        )

    async def _produce(self, index: int, request: EngineCoreRequest) -> None:
        script = request.sampling_params.extra_args or {}
        pause = script.get("sleep", self._sleep)
        tokens = self._script(script.get("text", self.script), index)
        first = True
        for k in itertools.count():
            await asyncio.sleep(pause)
            output = EngineCoreOutput(request.request_id)
            if first:
                self._begin(request, output)
                first = False
            if script.get("die_at") == k:
                self.die()
                return
            if script.get("error_at") == k:
                output.finish_reason = FinishReason.ERROR
                output.stop_reason = "NaN logits in /srv/models/secret/model.py"
            elif request.max_tokens == 0:
                output.finish_reason = FinishReason.LENGTH
            else:
                self._sample(request, output, next(tokens, None), k)
            self._outputs.process([output], time.monotonic())
            if output.finish_reason is not None:
                return

    def _script(self, text: str | None, index: int):
        source = SCRIPT if text is None else text
        if self.tokenizer is None:
            return itertools.cycle(range(3, 300))
        if text is None:
            words = source.split(" ")
            source = " ".join(words[index % len(words) :] + words[: index % len(words)])
        ids = self.tokenizer.encode(source, add_special_tokens=False)
        return iter(ids) if text is not None else itertools.cycle(ids)

    def _begin(self, request: EngineCoreRequest, output: EngineCoreOutput) -> None:
        output.num_cached_tokens = request.num_prompt_tokens // 16 * 16
        count = request.sampling_params.prompt_logprobs
        if count is not None:
            ids = request.token_ids
            output.new_prompt_logprobs = [self._logprobs(token, count) for token in ids[1:]]

    def _sample(
        self, request: EngineCoreRequest, output: EngineCoreOutput, token: int | None, k: int
    ) -> None:
        params = request.sampling_params
        if token is None:
            output.finish_reason = FinishReason.STOP
            return
        output.new_token_ids = [token]
        if params.logprobs is not None:
            output.new_logprobs = [self._logprobs(token, params.logprobs)]
        if token in (params.stop_token_ids or ()):
            output.finish_reason, output.stop_reason = FinishReason.STOP, token
        elif k + 1 >= request.max_tokens:
            output.finish_reason = FinishReason.LENGTH

    def _logprobs(self, token: int, count: int) -> TokenLogprobs:
        """The token is the second likeliest; the others are the ids after it."""
        size = self.config.model.vocab_size
        top = [(token + 1) % size, token, *((token + i) % size for i in range(2, 40))][:count]
        values = [-0.5 * (rank + 1) for rank in range(count)]
        return TokenLogprobs([token, *top], [-1.0, *values], 2)
