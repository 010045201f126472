"""CallForm: how a chat template wants the tool calls that a conversation holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

_NAME = "octavo_probe_tool"
_KEY = "octavo_probe_key"
_OBJECT = {_KEY: "value"}
_TEXT = json.dumps(_OBJECT)
_BROKEN = f'{{"{_KEY}": '
_CALL_ID = "octavo123"  # 9 letters and digits: some templates take no other ids
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class CallForm:
    """What a template does not lose or refuse.

    `content` is what an answer without text has in its place: None, "", or `absent`. Arguments go
    as text or as an object; text that holds no object (a call that was cut off) as it is, or as
    the only value of an object.
    """

    content: str | None = ""
    absent: bool = True
    as_text: bool = False
    broken_as_text: bool = True

    def apply(self, message: dict[str, Any]) -> None:
        """Change an assistant's message, a copy, to this form."""
        if message.get("content") is None:
            message["content"] = self.content
            if self.absent:
                del message["content"]
        message["tool_calls"] = [self._call(call) for call in message["tool_calls"]]

    def _call(self, call: Any) -> dict[str, Any]:
        """A call with all its parts, whatever a client has left of it."""
        call = call if isinstance(call, dict) else {}
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        name, kind = function.get("name"), call.get("type")
        return {
            **call,
            "type": kind if isinstance(kind, str) else "function",
            "function": {
                **function,
                "name": name if isinstance(name, str) else "",
                "arguments": self._arguments(function.get("arguments")),
            },
        }

    def _arguments(self, arguments: Any) -> Any:
        """Arguments as the API has them (JSON text) or as an object already."""
        if arguments is None or arguments == "":
            arguments = {}
        text = arguments if isinstance(arguments, str) else None
        value = arguments if text is None else _object_of(text)
        if isinstance(value, dict):
            return (text or json.dumps(value, ensure_ascii=False)) if self.as_text else value
        if text is None:
            text = json.dumps(value, ensure_ascii=False)
        return text if self.broken_as_text else {"arguments": text}


def find_call_form(render: Callable[[list[dict[str, Any]]], str | None]) -> CallForm:
    """The form a template takes, found by trying.

    `render` gives what the template makes of messages, None where it fails. A form is good if the
    tool's name comes out, and its arguments neither as Python writes them nor quoted once more.
    Text is taken where it comes out as the object does: then the prompt repeats what the model
    wrote, byte for byte.
    """
    fallback: CallForm | None = None
    for content in (_ABSENT, "", None):
        as_object = render(_conversation(content, _OBJECT))
        as_text = render(_conversation(content, _TEXT))
        takes_object, takes_text = _is_good(as_object), _is_good(as_text)
        form = CallForm(
            content=None if content is _ABSENT else content,  # type: ignore[arg-type]
            absent=content is _ABSENT,
            as_text=takes_text and (as_object == as_text or not takes_object),
            broken_as_text=_is_good(render(_conversation(content, _BROKEN))),
        )
        if takes_object or takes_text:
            return form
        if fallback is None and (as_object is not None or as_text is not None):
            fallback = form
    return fallback or CallForm()


def _conversation(content: Any, arguments: Any) -> list[dict[str, Any]]:
    function = {"name": _NAME, "arguments": arguments}
    call = {"id": _CALL_ID, "type": "function", "function": function}
    answer: dict[str, Any] = {"role": "assistant", "content": content, "tool_calls": [call]}
    if content is _ABSENT:
        del answer["content"]
    return [{"role": "user", "content": "question"}, answer]


def _is_good(text: str | None) -> bool:
    if text is None or _NAME not in text or _KEY not in text:
        return False
    return f"'{_KEY}'" not in text and f'\\"{_KEY}' not in text


def _object_of(text: str) -> Any:
    """What JSON text stands for; None if it is no object."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return None
