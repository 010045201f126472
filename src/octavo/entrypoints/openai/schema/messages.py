"""Bodies of /v1/messages and /v1/messages/count_tokens, as Anthropic's API has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec

from octavo.entrypoints.openai.schema.common import RequestBody

_FORMAT_NAMES = {
    "response_format.type": "output_config.format.type",
    "response_format.json_schema": "output_config.format",
    "response_format.json_schema.schema": "output_config.format.schema",
    "structured_outputs.json": "output_config.format.schema",
}


class Thinking(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Whether the model thinks before it answers, and how long.

    "adaptive" leaves the length to the model. With `display` "omitted" thoughts are not shown;
    they are never summarized.
    """

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What the answer has to look like."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How much work the answer is worth, and its form."""

    effort: str | None = None
    format: OutputFormat | None = None


class CountTokensRequest(RequestBody, kw_only=True):
    """A conversation whose tokens are to be counted."""

    refused: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "container": (None,),
        "context_management": (None, {}),
        "mcp_servers": (None, []),
    }
    harmless: ClassVar[frozenset[str]] = frozenset(
        {"betas", "cache_control", "inference_geo", "metadata", "service_tier", "user"}
    )

    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def field_names(self) -> Mapping[str, str]:
        """See RequestBody."""
        return {
            "prompt": "messages",
            "reasoning_effort": "output_config.effort",
            "thinking_token_budget": "thinking.budget_tokens",
            **_FORMAT_NAMES,
        }


class MessagesRequest(CountTokensRequest, kw_only=True):
    """A conversation to go on with."""

    max_tokens: int
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    cache_salt: str | None = None
    priority: int | None = None
    request_id: str | None = None

    def field_names(self) -> Mapping[str, str]:
        """See RequestBody."""
        return {**super().field_names(), "stop": "stop_sequences"}


class MessagesUsage(msgspec.Struct):
    """Tokens in and out; cached ones are not counted among the input's."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


class MessagesResponse(msgspec.Struct, kw_only=True):
    """The whole answer, or its beginning in a stream."""

    id: str
    type: str = "message"
    role: str = "assistant"
    model: str
    content: list[dict[str, Any]]
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: MessagesUsage


class MessagesErrorDetail(msgspec.Struct):
    """What went wrong."""

    type: str
    message: str


class MessagesError(msgspec.Struct, kw_only=True):
    """The body of every answer that is not a success."""

    type: str = "error"
    error: MessagesErrorDetail


class CountTokensResponse(msgspec.Struct):
    """How many tokens the model would read."""

    input_tokens: int
