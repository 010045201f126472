"""Bodies of /inference/v1/generate and of the render endpoints: tokens in, tokens out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from octavo.entrypoints.openai.schema.common import (
    PromptLogprobs,
    RequestBody,
    StreamOptions,
    Usage,
)


class GenerateRequest(RequestBody, kw_only=True, omit_defaults=True):
    """A prompt as token ids; `sampling_params` has the names of SamplingParams."""

    refused: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "features": (None,),
        "kv_transfer_params": (None, {}),
        "lora_request": (None,),
    }

    request_id: str | None = None
    token_ids: list[int]
    sampling_params: dict[str, Any] = msgspec.field(default_factory=dict)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    cache_salt: str | None = None
    priority: int | None = None

    def field_names(self) -> Mapping[str, str]:
        """See RequestBody."""
        return {"prompt": "token_ids"}


class GenerateLogprob(msgspec.Struct):
    """A token's log-probability and its rank."""

    logprob: float
    rank: int


class GenerateHiddenStates(msgspec.Struct):
    """Hidden states of a choice; see octavo.types.outputs.HiddenStates."""

    layers: list[int]
    first_position: int
    shape: list[int]  # layers, positions, hidden size
    data: bytes  # in JSON base64: little-endian float32, the last axis fastest


class GenerateChoice(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One of the n answers; in a stream, its news."""

    index: int
    token_ids: list[int]
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: list[dict[str, GenerateLogprob]] | None = None  # token id -> entry, per position
    hidden_states: GenerateHiddenStates | None = None


class GenerateResponse(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The whole answer, or a chunk of a stream."""

    request_id: str
    choices: list[GenerateChoice]
    usage: Usage | None = None
    prompt_logprobs: PromptLogprobs | None = None
