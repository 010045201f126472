"""Chat messages -> prompt text: checks what a client sent, then renders the template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from octavo.entrypoints.chat_template import RESERVED_NAMES, ChatTemplate
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.errors import RequestError

MAX_MESSAGES = 16384

_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")


class Conversation(Protocol):
    """The fields of a request that make up its prompt."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    documents: list[dict[str, Any]] | None
    chat_template: str | None
    chat_template_kwargs: dict[str, Any] | None
    add_generation_prompt: bool | None
    continue_final_message: bool | None


class ConversationRenderer:
    """Writes conversations down as the model's template wants them."""

    def __init__(
        self,
        template: ChatTemplate | None,
        tokenizer: Tokenizer | None,
        default_kwargs: Mapping[str, Any],
        trust_request_template: bool,
    ) -> None:
        self._template = template
        self._tokenizer = tokenizer
        self._default_kwargs = default_kwargs
        self._trust_request_template = trust_request_template

    def render(self, conversation: Conversation) -> str:
        """The prompt's text. Raises RequestError, with the template's own words if it refuses."""
        template = self._choose_template(conversation)
        messages = checked_messages(conversation.messages)
        go_on = bool(conversation.continue_final_message)
        if go_on and conversation.add_generation_prompt:
            raise RequestError(
                "add_generation_prompt and continue_final_message exclude each other; send one",
                "continue_final_message",
            )
        kwargs = {**self._default_kwargs, **(conversation.chat_template_kwargs or {})}
        reserved = sorted(RESERVED_NAMES & kwargs.keys())
        if reserved:
            raise RequestError(
                f"chat_template_kwargs can't set {reserved[0]!r}", "chat_template_kwargs"
            )
        begin_answer = conversation.add_generation_prompt
        return template.render(
            messages,
            tools=conversation.tools or None,
            documents=conversation.documents,
            add_generation_prompt=not go_on if begin_answer is None else begin_answer,
            continue_final_message=go_on,
            **kwargs,
        )

    def _choose_template(self, conversation: Conversation) -> ChatTemplate:
        if self._tokenizer is None:
            raise RequestError(
                "This server runs without a tokenizer; send token ids to /v1/completions"
            )
        if conversation.chat_template is not None:
            if not self._trust_request_template:
                raise RequestError(
                    "chat_template: this server takes no templates from requests; it would with "
                    "--trust-request-chat-template",
                    "chat_template",
                )
            return ChatTemplate(conversation.chat_template, self._tokenizer)
        if self._template is None:
            raise RequestError(
                "This model has no chat template; start the server with --chat-template, or use "
                "/v1/completions",
                "messages",
            )
        return self._template


def checked_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages as templates expect them: text parts only, arguments of tool calls as objects.

    The API writes those arguments as JSON text. A text that holds no object (a model's answer that
    was cut off) stays the text it is: a conversation must not end over what the model once said.
    Raises RequestError with the path at fault.
    """
    if not messages:
        raise RequestError("messages is empty; send at least one", "messages")
    if len(messages) > MAX_MESSAGES:
        raise RequestError(
            f"messages has {len(messages)} entries; at most {MAX_MESSAGES}", "messages"
        )
    return [_checked(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _checked(message: dict[str, Any], where: str) -> dict[str, Any]:
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not role:
        raise RequestError(f"{where}.role must be a string", f"{where}.role")
    checked = dict(message)
    if isinstance(content, list):
        checked["content"] = [
            _text_part(part, f"{where}.content[{i}]") for i, part in enumerate(content)
        ]
    elif content is None:
        if role != "assistant":
            raise RequestError(f"{where}.content is missing", f"{where}.content")
    elif not isinstance(content, str):
        raise RequestError(
            f"{where}.content must be a string or a list of parts", f"{where}.content"
        )
    if message.get("tool_calls"):
        checked["tool_calls"] = _tool_calls(message["tool_calls"], f"{where}.tool_calls")
    return checked


def _text_part(part: Any, where: str) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        raise RequestError(f"{where} must be a string or an object", where)
    kind = part.get("type")
    if kind not in _TEXT_PARTS:
        raise RequestError(
            f"{where} has the type {kind!r:.64}; this model takes text parts only", where
        )
    text = part.get("refusal" if kind == "refusal" else "text")
    if not isinstance(text, str):
        raise RequestError(f"{where}.text must be a string", where)
    return {"type": "text", "text": text}


def _tool_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise RequestError(f"{where} must be a list of objects", where)
    plain = []
    for call in calls:
        function = call.get("function")
        if isinstance(function, dict) and isinstance(function.get("arguments"), str):
            arguments = _arguments(function["arguments"])
            call = {**call, "function": {**function, "arguments": arguments}}
        plain.append(call)
    return plain


def _arguments(text: str) -> dict[str, Any] | str:
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return text
