"""FrontEnd: what LLMEngine and AsyncLLM share on this side of the core."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

from octavo.config.octavo_config import OctavoConfig
from octavo.engine.input_processor import InputProcessor, RequestLimits
from octavo.engine.metric_page import MetricPage
from octavo.engine.metrics import EngineMetrics
from octavo.engine.model_tokenizer import model_tokenizer
from octavo.engine.output_processor import OutputProcessor
from octavo.engine.pooling_inputs import PoolingInputs
from octavo.engine.serial import EngineFacts
from octavo.engine.stat_log import StatLog
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.utils.phases import Phases


class _Client(Protocol):
    facts: EngineFacts

    def shutdown(self) -> None: ...


Client = TypeVar("Client", bound=_Client)


class FrontEnd(Generic[Client]):
    """A client of a running core with the processors on both sides of it.

    `client_index` is this front end's place among those of the core; `page` is where they share
    their metrics.

    Raises what the tokenizer or the core raise when they can't be made; then nothing is left
    running.
    """

    def __init__(
        self,
        config: OctavoConfig,
        make_client: Callable[[OctavoConfig], Client],
        *,
        clamp_max_tokens: bool,
        client_index: int = 0,
        page: MetricPage | None = None,
    ) -> None:
        phases = Phases()
        # The tokenizer is read while the core starts.
        with ThreadPoolExecutor(1, thread_name_prefix="octavo-load") as pool:
            loading = pool.submit(model_tokenizer, config)
            self.client = make_client(config)
        try:
            self.tokenizer: Tokenizer | None = loading.result()
        except BaseException:
            self.client.shutdown()
            raise
        facts = self.client.facts
        if facts.max_model_len != config.model.max_model_len:
            config = config.with_max_model_len(
                facts.max_model_len, f"max_model_len={facts.max_model_len}: what the KV cache holds"
            )
        self.config = config
        limits = RequestLimits.of(config, clamp_max_tokens=clamp_max_tokens)
        self.inputs = InputProcessor(
            limits, self.tokenizer, config.model.seed, client_index=client_index
        )
        self.pooling = PoolingInputs(config, self.tokenizer, client_index=client_index)
        self.outputs = OutputProcessor(self.tokenizer, config.scheduler.stream_interval)
        self.metrics = EngineMetrics(config, facts, page, client_index)
        self.stat_log = StatLog(self.metrics)
        phases.add(facts.startup)
        self.metrics.startup = phases.complete()
