"""ScopedEngine: the engine as one HTTP request may use it, apart from other clients' requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from octavo.config.octavo_config import OctavoConfig
from octavo.engine.collector import OutputTap
from octavo.engine.metrics import EngineMetrics
from octavo.engine.pooling_state import PooledOutput
from octavo.engine.pooling_tokens import PoolingPrompt
from octavo.engine.prompts import Prompt
from octavo.entrypoints.openai.context import EngineClient
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.outputs import RequestOutput
from octavo.types.pooling_params import PoolingParams
from octavo.types.sampling_params import SamplingParams, StructuredOutputsParams


class ScopedEngine:
    """Adds to every request what the HTTP request says of its sender.

    Clients with different keys share no cached prefix, so that none can find out by the time of
    an answer what another one has asked; within a client, its own cache_salt separates further.
    """

    def __init__(
        self, engine: EngineClient, tenant: str | None, trace_headers: Mapping[str, str]
    ) -> None:
        self._engine = engine
        self._tenant = tenant
        self._trace_headers = trace_headers
        self.config: OctavoConfig = engine.config
        self.tokenizer: Tokenizer | None = engine.tokenizer
        self.metrics: EngineMetrics = engine.metrics

    @property
    def errored(self) -> bool:
        """See EngineClient."""
        return self._engine.errored

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
        """See EngineClient."""
        if self._tenant is not None and cache_salt != "":
            cache_salt = f"{self._tenant}:{cache_salt or ''}"
        return self._engine.generate(
            prompt,
            sampling_params,
            request_id,
            priority=priority,
            cache_salt=cache_salt,
            trace_headers=trace_headers or dict(self._trace_headers) or None,
            tap=tap,
        )

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
        """See EngineClient."""
        if self._tenant is not None and cache_salt != "":
            cache_salt = f"{self._tenant}:{cache_salt or ''}"
        return self._engine.encode(
            prompt,
            pooling_params,
            request_id,
            priority=priority,
            cache_salt=cache_salt,
            trace_headers=trace_headers or dict(self._trace_headers) or None,
        )

    async def abort(self, request_ids: str | list[str]) -> None:
        """See EngineClient."""
        await self._engine.abort(request_ids)

    async def check_grammar(self, spec: StructuredOutputsParams) -> None:
        """See EngineClient."""
        await self._engine.check_grammar(spec)

    async def reset_prefix_cache(self) -> bool:
        """See EngineClient."""
        return await self._engine.reset_prefix_cache()

    async def start_profile(self) -> None:
        """See EngineClient."""
        await self._engine.start_profile()

    async def stop_profile(self, folder: str) -> str:
        """See EngineClient."""
        return await self._engine.stop_profile(folder)

    async def check_health(self) -> None:
        """See EngineClient."""
        await self._engine.check_health()
