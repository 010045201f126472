"""Bodies of /v1/responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from octavo.entrypoints.openai.schema.common import RequestBody

_FORMAT_NAMES = {
    "response_format.type": "text.format.type",
    "response_format.json_schema": "text.format",
    "response_format.json_schema.schema": "text.format.schema",
    "structured_outputs.json": "text.format.schema",
    "structured_outputs.json_object": "text.format",
    "structured_outputs.structural_tag": "text.format",
}


class ResponsesRequest(RequestBody, kw_only=True):
    """A turn of a conversation: what is new, and perhaps the response it goes on from."""

    refused: ClassVar[Mapping[str, tuple[Any, ...]]] = {"prompt": (None,)}
    reasons: ClassVar[Mapping[str, str]] = {
        "prompt": ", which keeps no templates of prompts; send the text as instructions and input"
    }
    harmless: ClassVar[frozenset[str]] = frozenset(
        {"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier"}
    )

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None  # an id, or {"id": ...}
    truncation: str | None = None  # "auto": the oldest turns go where the rest would not fit
    include: list[str] | None = None
    top_logprobs: int | None = None
    max_tool_calls: int | None = None  # further ones are dropped
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None

    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    vllm_xargs: dict[str, Any] | None = None
    cache_salt: str | None = None
    priority: int | None = None
    request_id: str | None = None

    def field_names(self) -> Mapping[str, str]:
        """See RequestBody."""
        return {
            "messages": "input",
            "prompt": "input",
            "max_tokens": "max_output_tokens",
            "response_format": "text",
            "reasoning_effort": "reasoning",
            "extra_args": "vllm_xargs",
            **(_FORMAT_NAMES if self.text else {}),
        }


class InputTokensDetails(msgspec.Struct):
    """Where the input's tokens came from."""

    cached_tokens: int = 0


class OutputTokensDetails(msgspec.Struct):
    """What the output's tokens were for; reasoning is not counted apart."""

    reasoning_tokens: int = 0


class ResponsesUsage(msgspec.Struct):
    """Tokens in and out."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens_details: OutputTokensDetails = msgspec.field(default_factory=OutputTokensDetails)


class Response(msgspec.Struct, kw_only=True):
    """A response as it stands; `output` holds messages, reasoning and function calls."""

    id: str
    object: str = "response"
    created_at: int  # seconds since 1970
    completed_at: int | None = None
    status: str = "in_progress"
    background: bool = False
    conversation: dict[str, str] | None = None
    error: dict[str, Any] | None = None
    incomplete_details: dict[str, Any] | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] = {}
    model: str
    output: list[dict[str, Any]] = []
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    reasoning: dict[str, Any] = {}
    store: bool = True
    temperature: float | None = None
    text: dict[str, Any] = {}
    tool_choice: str | dict[str, Any] = "auto"
    tools: list[dict[str, Any]] = []
    top_logprobs: int = 0
    top_p: float | None = None
    truncation: str = "disabled"
    usage: ResponsesUsage | None = None
    user: str | None = None


class StoredResponse(msgspec.Struct):
    """What is kept of a response: itself, its own input, and the whole conversation up to it."""

    response: Response
    input: list[dict[str, Any]]  # items
    messages: list[dict[str, Any]]  # as /v1/chat/completions takes them, without instructions


class DeletedResponse(msgspec.Struct):
    """What DELETE answers."""

    id: str
    object: str = "response"
    deleted: bool = True


class InputItems(msgspec.Struct, kw_only=True):
    """The input of a stored response."""

    object: str = "list"
    data: list[dict[str, Any]]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False
