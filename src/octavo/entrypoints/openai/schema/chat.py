"""Bodies of /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from octavo.entrypoints.openai.schema.common import GenerationBody, PromptLogprobs, Usage

_REFUSED: dict[str, tuple[Any, ...]] = {
    "audio": (None,),
    "function_call": (None, "none"),
    "functions": (None, []),
    "media_io_kwargs": (None, {}),
    "mm_processor_kwargs": (None, {}),
    "modalities": (None, [], ["text"]),
    "verbosity": (None, "medium"),
    "web_search_options": (None,),
}


class ChatRequest(GenerationBody, kw_only=True):
    """A conversation to go on with.

    Messages are plain dictionaries, because templates may use keys of their own.
    """

    refused: ClassVar[Mapping[str, tuple[Any, ...]]] = {**GenerationBody.refused, **_REFUSED}

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    documents: list[dict[str, Any]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None  # False: at most one call
    reasoning_effort: str | None = None
    include_reasoning: bool | None = None  # False: reasoning is left out of the answer
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    echo: bool | None = None  # begin the answer with the last message

    def field_names(self) -> Mapping[str, str]:
        """See RequestBody."""
        names = {**super().field_names(), "prompt": "messages"}
        if self.max_completion_tokens is not None:
            names["max_tokens"] = "max_completion_tokens"
        return names


class TokenLogprob(msgspec.Struct):
    """One token with its log-probability; `bytes` is its exact text."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChatLogprob(msgspec.Struct):
    """A generated token and the likeliest ones at its place."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TokenLogprob]


class ChatLogprobs(msgspec.Struct):
    """Log-probabilities of a choice's tokens, in order."""

    content: list[ChatLogprob]


class FunctionCall(msgspec.Struct):
    """A tool's name and its arguments, which are JSON text."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct):
    """One call that the model wants made."""

    id: str
    function: FunctionCall
    type: str = "function"


class ChatMessage(msgspec.Struct):
    """The model's answer; content is null where it is calls or reasoning only.

    Reasoning goes by the two names that clients look for.
    """

    role: str
    content: str | None
    refusal: None = None
    reasoning: str | msgspec.UnsetType = msgspec.UNSET
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[ToolCall] | msgspec.UnsetType = msgspec.UNSET


class ChatChoice(msgspec.Struct, kw_only=True):
    """One of the n answers."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


class ChatResponse(msgspec.Struct, kw_only=True):
    """The whole answer, not streamed."""

    id: str
    object: str = "chat.completion"
    created: int  # seconds since 1970
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
