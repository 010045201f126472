"""Chat messages -> prompt text: checks what a client sent, then renders the template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from octavo.entrypoints.chat_template import RESERVED_NAMES, ChatTemplate
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.errors import RequestError

MAX_MESSAGES = 16384

HistoryId = Callable[[str, str, int], str]
"""(id of a call in the conversation, its tool's name, its number) -> its id in the prompt."""

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
        *,
        history_id: HistoryId | None = None,
        hide_unused_tools: bool = False,
    ) -> None:
        self._template = template
        self._tokenizer = tokenizer
        self._default_kwargs = default_kwargs
        self._trust_request_template = trust_request_template
        self._history_id = history_id
        self._hide_unused_tools = hide_unused_tools

    @property
    def thinking_switches(self) -> tuple[str, ...]:
        """The variables by which the model's template is told whether to think."""
        return () if self._template is None else _thinking_switches(self._template)

    def render(self, conversation: Conversation) -> str:
        """The prompt's text. Raises RequestError, with the template's own words if it refuses."""
        template = self._choose_template(conversation)
        messages = checked_messages(conversation.messages)
        if self._history_id is not None:
            rename_calls(messages, self._history_id)
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
        effort = getattr(conversation, "reasoning_effort", None)
        if effort is not None:
            kwargs = _effort_variables(effort, template) | kwargs
        if conversation.documents and "documents" not in template.variables:
            raise RequestError(
                "documents: this model's chat template shows none; put their text into messages",
                "documents",
            )
        tools = conversation.tools or None
        if self._hide_unused_tools and getattr(conversation, "tool_choice", None) == "none":
            tools = None
        begin_answer = conversation.add_generation_prompt
        return template.render(
            messages,
            tools=tools,
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
    """Messages as templates expect them: text parts only, an assistant's thoughts as reasoning.

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
    if role == "assistant" and isinstance(content, list):
        checked["content"] = content = _take_thoughts(content, checked) or None
    if isinstance(content, list):
        checked["content"] = [
            _text_part(part, f"{where}.content[{i}]") for i, part in enumerate(content)
        ]
    elif content is None:
        if role == "tool":
            checked["content"] = ""
        elif role != "assistant":
            raise RequestError(f"{where}.content is missing", f"{where}.content")
    elif not isinstance(content, str):
        raise RequestError(
            f"{where}.content must be a string or a list of parts", f"{where}.content"
        )
    calls = message.get("tool_calls")
    if calls:
        where = f"{where}.tool_calls"
        if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
            raise RequestError(f"{where} must be a list of objects", where)
    return checked


def _take_thoughts(parts: list[Any], message: dict[str, Any]) -> list[Any]:
    """The parts without those that hold thoughts, which become the message's reasoning."""
    thoughts = []
    rest = []
    for part in parts:
        is_thought = isinstance(part, dict) and part.get("type") == "thinking"
        text = part.get("thinking") if is_thought else None
        if isinstance(text, str):
            thoughts.append(text)
        else:
            rest.append(part)
    if thoughts:
        message.setdefault("reasoning_content", "\n".join(thoughts))
    return rest


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


def rename_calls(messages: list[dict[str, Any]], history_id: HistoryId) -> None:
    """Give calls, and the results that belong to them, the ids that the model knows."""
    number = 0
    names: dict[str, str] = {}
    for message in messages:
        calls = message.get("tool_calls") or []
        renamed = []
        for call in calls:
            known = call.get("id")
            function = call.get("function")
            if isinstance(known, str):
                name = function.get("name") if isinstance(function, dict) else None
                names[known] = history_id(known, name if isinstance(name, str) else "", number)
                call = {**call, "id": names[known]}
            renamed.append(call)
            number += 1
        if renamed:
            message["tool_calls"] = renamed
        answered = message.get("tool_call_id")
        if isinstance(answered, str):
            message["tool_call_id"] = names.get(answered) or history_id(answered, "", number)


def _thinking_switches(template: ChatTemplate) -> tuple[str, ...]:
    return tuple(name for name in ("enable_thinking", "thinking") if name in template.variables)


def _effort_variables(effort: str, template: ChatTemplate) -> dict[str, Any]:
    """`reasoning_effort` in the words of the template. Raises RequestError if it has none."""
    if "reasoning_effort" in template.variables:
        return {"reasoning_effort": effort}
    switches = _thinking_switches(template)
    if not switches and effort != "none":
        raise RequestError(
            f"reasoning_effort={effort!r:.32}: this model's chat template knows no such thing; "
            "leave it out",
            "reasoning_effort",
        )
    return dict.fromkeys(switches, effort != "none")
