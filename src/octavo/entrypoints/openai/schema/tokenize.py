"""Bodies of /tokenize, /detokenize and /tokenizer_info."""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.entrypoints.openai.schema.common import RequestBody


class TokenizeTextRequest(RequestBody, kw_only=True):
    """A text to tokenize as /v1/completions would."""

    prompt: str
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenizeChatRequest(RequestBody, kw_only=True):
    """A conversation to tokenize as /v1/chat/completions would."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    documents: list[dict[str, Any]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenizeResponse(msgspec.Struct):
    """The tokens of a prompt."""

    count: int
    max_model_len: int  # tokens
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(RequestBody, kw_only=True):
    """Tokens to turn into text."""

    tokens: list[int]


class DetokenizeResponse(msgspec.Struct):
    """The text of some tokens."""

    prompt: str


class TokenizerInfo(msgspec.Struct):
    """What clients need that write prompts down themselves, and count tokens by /tokenize."""

    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    chat_template: str | None
    add_bos_token: bool  # whether a prompt's text gets bos_token in front
    model_max_length: int  # tokens
