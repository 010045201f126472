"""Bodies of /v1/completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from octavo.entrypoints.openai.schema.common import GenerationBody, PromptLogprobs, Usage


class CompletionRequest(GenerationBody, kw_only=True):
    """One prompt or several: each a text or a list of token ids."""

    refused: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **GenerationBody.refused,
        "suffix": (None, ""),
    }

    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    echo: bool | None = None  # begin each choice with its prompt


class CompletionLogprobs(msgspec.Struct):
    """Parallel lists, one entry per token."""

    text_offset: list[int]  # characters from the start of the choice's text
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(msgspec.Struct, kw_only=True):
    """One answer: choice `prompt * n + k` is the k-th of its prompt."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


class CompletionResponse(msgspec.Struct, kw_only=True):
    """The whole answer, not streamed."""

    id: str
    object: str = "text_completion"
    created: int  # seconds since 1970
    model: str
    choices: list[CompletionChoice]
    usage: Usage
