"""Anthropic's messages, system prompt and tools -> those of /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from octavo.entrypoints.openai.opaque_text import unpack
from octavo.entrypoints.openai.schema.messages import CountTokensRequest
from octavo.types.errors import RequestError

_TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_fields(body: CountTokensRequest) -> dict[str, Any]:
    """The fields of a chat request that make up its prompt. Raises RequestError."""
    messages: list[dict[str, Any]] = []
    if body.system:
        messages.append({"role": "system", "content": _joined_text(body.system, "system")})
    for i, message in enumerate(body.messages):
        messages += _messages(message, f"messages[{i}]")
    prefilled = bool(body.messages) and body.messages[-1].get("role") == "assistant"
    fields: dict[str, Any] = {
        "model": body.model,
        "messages": messages,
        "chat_template_kwargs": body.chat_template_kwargs,
        "tools": [_tool(t, f"tools[{i}]") for i, t in enumerate(body.tools or ())] or None,
    }
    if prefilled:
        fields |= {"continue_final_message": True, "add_generation_prompt": False}
    if body.output_config is not None:
        fields["reasoning_effort"] = body.output_config.effort
        shape = body.output_config.format
        if shape is not None:
            schema = {"name": "output", "schema": shape.schema}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if body.tool_choice is not None:
        fields |= _tool_choice(body.tool_choice)
    return fields


def _messages(message: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        raise RequestError(f"{where}.role must be user or assistant", f"{where}.role")
    if isinstance(content, str):
        yield {"role": role, "content": content}
        return
    if not isinstance(content, list):
        raise RequestError(
            f"{where}.content must be a string or a list of blocks", f"{where}.content"
        )
    blocks = [_block(block, f"{where}.content[{i}]") for i, block in enumerate(content)]
    if role == "assistant":
        yield _assistant(blocks, where)
        return
    texts = []
    for i, block in enumerate(blocks):
        match block["type"]:
            case "tool_result":
                yield _tool_result(block, f"{where}.content[{i}]")
            case "text":
                texts.append(_text(block, f"{where}.content[{i}]"))
            case kind:
                raise _unsupported(kind, f"{where}.content[{i}]")
    if texts or not blocks:
        yield {"role": role, "content": "\n".join(texts)}


def _assistant(blocks: list[dict[str, Any]], where: str) -> dict[str, Any]:
    texts, reasoning, calls = [], [], []
    for i, block in enumerate(blocks):
        place = f"{where}.content[{i}]"
        match block["type"]:
            case "text":
                texts.append(_text(block, place))
            case "thinking":
                thought = _string(block, "thinking", place)
                reasoning.append(thought or unpack(block.get("signature")) or "")
            case "tool_use":
                arguments = msgspec.json.encode(block.get("input", {})).decode()
                name = _string(block, "name", place)
                calls.append(
                    {
                        "id": _string(block, "id", place),
                        "type": "function",
                        "function": {"name": name, "arguments": arguments},
                    }
                )
            case kind:
                raise _unsupported(kind, place)
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None}
    if any(reasoning):
        message["reasoning"] = "\n".join(reasoning)
    if calls:
        message["tool_calls"] = calls
    elif message["content"] is None:
        message["content"] = ""
    return message


def _tool_result(block: Mapping[str, Any], where: str) -> dict[str, Any]:
    content = block.get("content") or ""
    text = _joined_text(content, f"{where}.content")
    if block.get("is_error"):
        text = f"Error: {text}"
    call_id = _string(block, "tool_use_id", where)
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _joined_text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError(f"{where} must be a string or a list of text blocks", where)
    texts = []
    for i, block in enumerate(content):
        place = f"{where}[{i}]"
        if _block(block, place)["type"] != "text":
            raise _unsupported(block["type"], place)
        texts.append(_text(block, place))
    return "\n".join(texts)


def _block(block: Any, where: str) -> dict[str, Any]:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise RequestError(f"{where} must be an object with a type", where)
    return block


def _text(block: Mapping[str, Any], where: str) -> str:
    return _string(block, "text", where)


def _string(block: Mapping[str, Any], name: str, where: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise RequestError(f"{where}.{name} must be a string", f"{where}.{name}")
    return value


def _unsupported(kind: str, where: str) -> RequestError:
    return RequestError(f"{where} has the type {kind!r:.64}, which this model does not take", where)


def _tool(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    if tool.get("type") not in (None, "custom"):
        raise RequestError(f"{where}.type: this server runs no tools itself", f"{where}.type")
    function = {"name": _string(tool, "name", where), "parameters": tool.get("input_schema")}
    for name in ("description", "strict"):
        if tool.get(name) is not None:
            function[name] = tool[name]
    return {"type": "function", "function": function}


def _tool_choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    kind = choice.get("type")
    if kind == "tool":
        name = _string(choice, "name", "tool_choice")
        fields["tool_choice"] = {"type": "function", "function": {"name": name}}
    elif isinstance(kind, str) and kind in _TOOL_CHOICES:
        fields["tool_choice"] = _TOOL_CHOICES[kind]
    else:
        raise RequestError("tool_choice.type must be auto, any, none or tool", "tool_choice.type")
    if choice.get("disable_parallel_tool_use"):
        fields["parallel_tool_calls"] = False
    return fields
