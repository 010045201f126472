"""Items of /v1/responses -> messages of /v1/chat/completions, and the fields around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from octavo.entrypoints.openai.opaque_text import unpack
from octavo.entrypoints.openai.schema.responses import ResponsesRequest
from octavo.types.errors import RequestError

_ROLES = {"developer": "system", "system": "system", "user": "user", "assistant": "assistant"}
_TEXT_PARTS = ("input_text", "output_text", "text", "refusal")
_SAME = (
    "model",
    "temperature",
    "top_p",
    "parallel_tool_calls",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "ignore_eos",
    "chat_template_kwargs",
    "vllm_xargs",
    "cache_salt",
    "priority",
    "request_id",
    "stream",
    "structured_outputs",
)


def chat_fields(body: ResponsesRequest, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The chat request that a turn comes to. Raises RequestError."""
    system = [{"role": "system", "content": body.instructions}] if body.instructions else []
    fields: dict[str, Any] = {name: getattr(body, name) for name in _SAME}
    fields |= {
        "messages": [*system, *messages],
        "max_tokens": body.max_output_tokens,
        "tools": [_tool(t, f"tools[{i}]") for i, t in enumerate(body.tools or ())] or None,
        "tool_choice": _tool_choice(body.tool_choice),
        "response_format": _response_format(body.text or {}),
    }
    if body.max_tool_calls == 1:
        fields["parallel_tool_calls"] = False  # a grammar of calls ends after one then
    _check_stream_options(body)
    for name, value in (body.reasoning or {}).items():
        if name == "effort":
            fields["reasoning_effort"] = value
        elif value is not None:
            raise RequestError(f"reasoning.{name} is not supported by this server", "reasoning")
    return fields


def input_items(value: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The input as a list of items."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    return value


def messages_of(items: Iterable[Mapping[str, Any]], param: str = "input") -> list[dict[str, Any]]:
    """Items as messages; calls and reasoning join the assistant's message.

    Raises RequestError, which names `param`, the field that holds the items.
    """
    messages: list[dict[str, Any]] = []
    for i, item in enumerate(items):
        where = f"{param}[{i}]"
        match item.get("type", "message"):
            case "message":
                message = _message(item, where)
                if message["role"] == "assistant" and _goes_on(messages):
                    messages[-1]["content"] = message["content"]
                else:
                    messages.append(message)
            case "function_call":
                _assistant(messages).setdefault("tool_calls", []).append(
                    {
                        "id": _string(item, "call_id", where),
                        "type": "function",
                        "function": {
                            "name": _string(item, "name", where),
                            "arguments": _string(item, "arguments", where),
                        },
                    }
                )
            case "function_call_output":
                call_id = _string(item, "call_id", where)
                text = _text(item.get("output"), f"{where}.output")
                messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
            case "reasoning":
                text = _text(item.get("content") or "", f"{where}.content")
                text = text or unpack(item.get("encrypted_content")) or ""
                if text:
                    messages.append({"role": "assistant", "content": None, "reasoning": text})
            case kind:
                raise RequestError(f"{where} has the unknown type {kind!r:.64}", where)
    for message in messages:
        if message.get("content") is None and not message.get("tool_calls"):
            message["content"] = ""
    return messages


def _goes_on(messages: list[dict[str, Any]]) -> bool:
    """Whether the last message is an assistant's that has no text yet."""
    return (
        bool(messages)
        and messages[-1]["role"] == "assistant"
        and messages[-1].get("content") is None
        and "tool_calls" not in messages[-1]
    )


def _assistant(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant's message that a call belongs to."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    return messages[-1]


def _message(item: Mapping[str, Any], where: str) -> dict[str, Any]:
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise RequestError(f"{where}.role must be one of {', '.join(_ROLES)}", f"{where}.role")
    return {"role": _ROLES[role], "content": _text(item.get("content"), f"{where}.content")}


def _text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError(f"{where} must be a string or a list of parts", where)
    texts = []
    for i, part in enumerate(content):
        place = f"{where}[{i}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in (*_TEXT_PARTS, "reasoning_text"):
            raise RequestError(f"{place} has the type {kind!r:.64}; only text is taken", place)
        texts.append(_string(part, "refusal" if kind == "refusal" else "text", place))
    return "\n".join(texts)


def _string(item: Mapping[str, Any], name: str, where: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise RequestError(f"{where}.{name} must be a string", f"{where}.{name}")
    return value


def _tool(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise RequestError(
            f"{where}.type: only function tools; this server runs none itself", f"{where}.type"
        )
    names = ("name", "description", "parameters", "strict")
    function = {name: tool[name] for name in names if tool.get(name) is not None}
    return {"type": "function", "function": function}


def _tool_choice(choice: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") != "function":
        raise RequestError("tool_choice.type must be function", "tool_choice")
    return {"type": "function", "function": {"name": _string(choice, "name", "tool_choice")}}


def _response_format(text: Mapping[str, Any]) -> dict[str, Any] | None:
    if text.get("verbosity") not in (None, "medium"):
        raise RequestError("text.verbosity is not supported by this server", "text.verbosity")
    shape = text.get("format")
    if shape is None:
        return None
    if not isinstance(shape, dict):
        raise RequestError("text.format must be an object", "text.format")
    if shape.get("type") != "json_schema":
        return shape
    inner = {name: value for name, value in shape.items() if name != "type"}
    return {"type": "json_schema", "json_schema": inner}


def _check_stream_options(body: ResponsesRequest) -> None:
    for name, value in (body.stream_options or {}).items():
        if name != "include_obfuscation" or value:
            raise RequestError(f"stream_options.{name} is not supported", "stream_options")
