"""octavo: a high-throughput, low-latency engine that serves large language models."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.engine.async_llm import AsyncLLM as AsyncLLM
    from octavo.entrypoints.llm import LLM as LLM
    from octavo.types.beam_search import BeamSearchOutput as BeamSearchOutput
    from octavo.types.beam_search import BeamSearchParams as BeamSearchParams
    from octavo.types.outputs import CompletionOutput as CompletionOutput
    from octavo.types.outputs import RequestOutput as RequestOutput
    from octavo.types.pooling_outputs import PoolingRequestOutput as PoolingRequestOutput
    from octavo.types.pooling_params import PoolingParams as PoolingParams
    from octavo.types.sampling_extras import HiddenStatesParams as HiddenStatesParams
    from octavo.types.sampling_extras import RepetitionDetectionParams as RepetitionDetectionParams
    from octavo.types.sampling_params import RequestOutputKind as RequestOutputKind
    from octavo.types.sampling_params import SamplingParams as SamplingParams

__version__ = "0.1.0"

# Public names, imported on first use: `import octavo` must load neither torch nor the engine.
_PUBLIC = {
    "LLM": "octavo.entrypoints.llm",
    "AsyncLLM": "octavo.engine.async_llm",
    "EngineArgs": "octavo.config.engine_args",
    "SamplingParams": "octavo.types.sampling_params",
    "BeamSearchParams": "octavo.types.beam_search",
    "BeamSearchOutput": "octavo.types.beam_search",
    "HiddenStatesParams": "octavo.types.sampling_extras",
    "RepetitionDetectionParams": "octavo.types.sampling_extras",
    "PoolingParams": "octavo.types.pooling_params",
    "RequestOutputKind": "octavo.types.sampling_params",
    "RequestOutput": "octavo.types.outputs",
    "PoolingRequestOutput": "octavo.types.pooling_outputs",
    "CompletionOutput": "octavo.types.outputs",
}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(importlib.import_module(_PUBLIC[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'octavo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
