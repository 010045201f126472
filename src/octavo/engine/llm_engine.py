"""LLMEngine: the synchronous engine, a loop of add_request and step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from octavo.checkpoints.sharded_files import MAX_SHARD_BYTES
from octavo.config.engine_args import EngineArgs
from octavo.config.octavo_config import OctavoConfig
from octavo.engine.core_client import CLIENTS
from octavo.engine.front_end import FrontEnd
from octavo.engine.metrics import EngineMetrics
from octavo.engine.pooling_state import PoolingReader
from octavo.engine.pooling_tokens import PoolingPrompt, PoolingTokens
from octavo.engine.prompts import Prompt, parse_prompt
from octavo.structured_output.interface import BACKENDS
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.outputs import RequestOutput
from octavo.types.pooling_params import PoolingParams
from octavo.types.request import LoRARequest
from octavo.types.sampling_params import SamplingParams
from octavo.utils import envs
from octavo.utils.logging import get_logger
from octavo.utils.phases import phase_table
from octavo.utils.profiling import HostSpans

logger = get_logger(__name__)


class LLMEngine:
    """Requests in by `add_request`, outputs out by `step`. For one thread.

    The core runs in its own process unless OCTAVO_ENABLE_MULTIPROCESSING=0. A max_tokens that
    does not fit the model's length is lowered to what does.
    """

    def __init__(self, config: OctavoConfig) -> None:
        make_client = CLIENTS.get("mp" if envs.multiprocessing() else "inproc")
        self._front_end = FrontEnd(config, make_client, clamp_max_tokens=True)
        self._client = self._front_end.client
        self._outputs = self._front_end.outputs
        self._spans = HostSpans()
        self.config: OctavoConfig = self._front_end.config
        self.tokenizer: Tokenizer | None = self._front_end.tokenizer
        self.metrics: EngineMetrics = self._front_end.metrics
        logger.info("start-up:\n%s", phase_table(self.metrics.startup))

    @classmethod
    def from_engine_args(cls, args: EngineArgs) -> Self:
        """Resolve the arguments, with the defaults of offline use, and start."""
        return cls(args.create_engine_config(usage="llm"))

    @property
    def num_unfinished(self) -> int:
        """Sequences in flight."""
        return self._outputs.num_unfinished

    def has_unfinished_requests(self) -> bool:
        """Whether `step` has anything to do."""
        return self._outputs.num_unfinished > 0

    def tokenize(self, prompt: Prompt) -> list[int]:
        """The token ids of a prompt; raises RequestError."""
        return self._front_end.inputs.tokenize(parse_prompt(prompt))

    def add_request(
        self,
        request_id: str,
        prompt: Prompt,
        sampling_params: SamplingParams,
        *,
        arrival_time: float | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
        lora_request: LoRARequest | None = None,
        trace_headers: dict[str, str] | None = None,
    ) -> None:
        """Queue a request; raises RequestError, then nothing has been queued."""
        parsed = parse_prompt(prompt, cache_salt)
        request = self._front_end.inputs.make_request(
            request_id,
            parsed,
            self._front_end.inputs.tokenize(parsed),
            sampling_params,
            arrival_time=arrival_time,
            priority=priority,
            lora_request=lora_request,
            trace_headers=trace_headers,
        )
        spec = request.sampling_params.structured_outputs
        if spec is not None:
            BACKENDS.get(self.config.structured_outputs.backend).check(spec)
        self._client.add_requests(self._outputs.add_request(request_id, request, parsed.text))

    def add_pooling_requests(
        self,
        requests: Sequence[tuple[str, Prompt | PoolingPrompt]],
        pooling_params: PoolingParams,
        readers: Sequence[PoolingReader],
    ) -> None:
        """Queue (request id, prompt) pairs; `step` gives each one's result to its reader.

        Raises RequestError, then nothing has been queued.
        """
        pooling = self._front_end.pooling
        made = [
            pooling.make_request(name, pooling.prompt(prompt, pooling_params), pooling_params)
            for name, prompt in requests
        ]
        for (name, _), request, reader in zip(requests, made, readers, strict=True):
            self._outputs.add_pooling_request(name, request, reader)
        self._client.add_requests(made)

    @property
    def pooling_tokens(self) -> PoolingTokens:
        """How texts to be pooled are tokenized."""
        return self._front_end.pooling.tokens

    def step(self) -> list[RequestOutput]:
        """Wait for the news of one step of the core. Raises EngineDeadError."""
        if not self.has_unfinished_requests():
            return []
        news = self._client.get_output()
        processed = self._outputs.process(news.outputs, news.timestamp)
        if processed.finishes:
            self._client.finish_requests(processed.finishes)
        stats = self._outputs.take_stats()
        if not self.config.observability.disable_log_stats:
            self.metrics.record(news.scheduler_stats, stats)
            self._front_end.stat_log.log_if_due()
        return processed.request_outputs

    def abort_requests(self, request_ids: Iterable[str]) -> list[RequestOutput]:
        """End requests by the ids given to add_request; returns their last outputs."""
        internal = [name for id_ in request_ids for name in self._outputs.internal_ids(id_)]
        aborted, outputs = self._outputs.abort(internal)
        if aborted:
            self._client.abort_requests(aborted)
        return outputs

    def reset_prefix_cache(self) -> bool:
        """Forget every cached prefix; False while requests hold blocks."""
        return bool(self._client.call_utility("reset_prefix_cache"))

    def save_sharded_state(self, path: str, max_size: int = MAX_SHARD_BYTES) -> None:
        """Write the weights as this engine holds them, for load_format="sharded_state"."""
        arguments = [str(Path(path).absolute()), max_size]
        self._client.call_utility("collective_rpc", "save_sharded_state", arguments)

    def start_profile(self) -> None:
        """Record what front end, core and device do in the steps from now on."""
        self._client.call_utility("start_profile")
        self._spans.watch(self._outputs, "process", "process outputs")

    def stop_profile(self, folder: str = ".") -> str:
        """End the recording; returns the path of the trace, for ui.perfetto.dev."""
        spans = self._spans.stop()
        return str(self._client.call_utility("stop_profile", folder, spans))

    def shutdown(self) -> None:
        """End the core; safe to call twice."""
        self._client.shutdown()
