"""Bodies of /v1/messages and /v1/messages/count_tokens, as Anthropic's API has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from octavo.entrypoints.openai.schema.common import RequestBody


class CountTokensRequest(RequestBody, kw_only=True):
    """A conversation whose tokens are to be counted."""

    refused: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "container": (None,),
        "context_management": (None, {}),
        "mcp_servers": (None, []),
        "output_config": (None, {}),
        "thinking": (None, {"type": "disabled"}, {"type": "adaptive"}),
    }
    harmless: ClassVar[frozenset[str]] = frozenset(
        {"betas", "cache_control", "inference_geo", "metadata", "service_tier", "user"}
    )

    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


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
        return {"stop": "stop_sequences", "prompt": "messages"}


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


class CountTokensResponse(msgspec.Struct):
    """How many tokens the model would read."""

    input_tokens: int
