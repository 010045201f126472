"""ServerContext: what every endpoint may use, put together once."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, Protocol

from octavo.config.octavo_config import OctavoConfig
from octavo.config.server import ServerArgs
from octavo.engine.collector import OutputTap
from octavo.engine.metrics import EngineMetrics
from octavo.engine.pooling_state import PooledOutput
from octavo.engine.pooling_tokens import PoolingPrompt
from octavo.engine.prompts import Prompt
from octavo.entrypoints.openai.background import BackgroundRuns
from octavo.entrypoints.openai.conversation import ConversationRenderer
from octavo.entrypoints.openai.parsing import RequestParser
from octavo.entrypoints.openai.prompts import PromptBuilder
from octavo.entrypoints.openai.response_store import ResponseStore
from octavo.entrypoints.openai.sampling import SamplingDefaults
from octavo.entrypoints.openai.schema.responses import StoredResponse
from octavo.entrypoints.openai.workers import Workers
from octavo.entrypoints.tool_parsers.answer_parsers import AnswerParsers
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.errors import NotFoundError
from octavo.types.outputs import RequestOutput
from octavo.types.pooling_params import PoolingParams
from octavo.types.sampling_params import SamplingParams, StructuredOutputsParams


class EngineClient(Protocol):
    """The part of AsyncLLM that the server uses."""

    @property
    def config(self) -> OctavoConfig:
        """Everything that was decided before the engine started."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer, unless the engine runs without one."""

    @property
    def errored(self) -> bool:
        """Whether the engine core has died."""

    @property
    def metrics(self) -> EngineMetrics:
        """Its counters, gauges and histograms."""

    def generate(
        self,
        prompt: Any,
        sampling_params: SamplingParams,
        request_id: str,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
        trace_headers: dict[str, str] | None = None,
        tap: OutputTap | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """The outputs of one request, but for those that go by `tap`; closing it aborts it.

        The last output of a request that failed says why, then GenerationError is raised.
        """

    def encode(
        self,
        prompt: Prompt | PoolingPrompt,
        pooling_params: PoolingParams,
        request_id: str,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
        trace_headers: dict[str, str] | None = None,
    ) -> AsyncGenerator[PooledOutput, None]:
        """The one output of a request that is pooled; closing the generator aborts it."""

    async def abort(self, request_ids: str | list[str]) -> None:
        """End every request that goes by these ids, whichever process answers it."""

    async def check_grammar(self, spec: StructuredOutputsParams) -> None:
        """Raises RequestError if requests with this constraint are not served."""

    async def reset_prefix_cache(self) -> bool:
        """Forget every cached prefix; False while requests hold blocks."""

    async def start_profile(self) -> None:
        """Record the engine's steps from now on. Raises OctavoError if that is done already."""

    async def stop_profile(self, folder: str) -> str:
        """End the recording; returns the path of the trace. Raises OctavoError if there is none."""

    async def check_health(self) -> None:
        """Raises EngineDeadError when the engine core has died or makes no progress."""


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The engine and what is made of its configuration and of the server's options."""

    engine: EngineClient
    args: ServerArgs
    workers: Workers
    parser: RequestParser
    prompts: PromptBuilder
    conversations: ConversationRenderer
    parsers: AnswerParsers
    sampling: SamplingDefaults
    responses: ResponseStore
    background: BackgroundRuns
    max_model_len: int  # tokens
    model_names: tuple[str, ...]  # the first one is the one answers carry
    model_root: str
    started: int  # seconds since 1970
    # Responses being written in this process, by their keys in the store, which may drop them.
    unfinished_responses: dict[str, StoredResponse] = field(default_factory=dict)

    def check_model(self, name: str | None) -> None:
        """Raises NotFoundError for a model that is not served; no name stands for the only one."""
        if name and name not in self.model_names:
            raise NotFoundError(
                f"The model {name!r:.128} does not exist; this server has: "
                f"{', '.join(self.model_names)}"
            )
