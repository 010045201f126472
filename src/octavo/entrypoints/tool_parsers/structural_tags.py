"""Structural tags: what the calls of an answer must look like, in the form grammar engines take.

The format is xgrammar's structural tag; of its parts, tag, json_schema, sequence, const_string,
triggered_tags and tags_with_separator are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from octavo.entrypoints.tool_parsers.tools import Tool, Tools

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """What a request asks for.

    "none": no calls; "auto": as the model likes; "required": at least one call; "named": a call
    to the tool `name`.
    """

    mode: Literal["none", "auto", "required", "named"]
    name: str | None = None

    @property
    def forced(self) -> bool:
        """Whether the answer has to be a call."""
        return self.mode in ("required", "named")


@dataclass(frozen=True, slots=True)
class CallShape:
    """How a family writes calls: `begin` of a tool's call, its arguments as JSON, `end`.

    `section` stands around all calls, `separator` between two. Special tokens are spelled out.
    """

    begin: Callable[[str], str]
    end: str
    section: tuple[str, str] = ("", "")
    separator: str = ""

    def tag(self, tools: Tools, choice: ToolChoice, parallel: bool) -> dict[str, Any]:
        """The structural tag of answers to such a request.

        In "auto" text may stand around calls, and only the arguments of strict tools are bound to
        their schema.
        """
        offered = [tool for tool in tools.tools if choice.name in (None, tool.name)]
        tags = [self._call(tool, choice) for tool in offered]
        calls: dict[str, Any] = {
            "type": "tags_with_separator",
            "tags": tags,
            "separator": self.separator,
            "at_least_one": True,
            "stop_after_first": not parallel,
        }
        begin, end = self.section
        if choice.forced:
            parts = [_constant(begin), calls, _constant(end)]
            elements = [part for part in parts if part is not None]
            return _whole(
                elements[0] if len(elements) == 1 else {"type": "sequence", "elements": elements}
            )
        if begin:
            tags = [{"type": "tag", "begin": begin, "content": calls, "end": end}]
        trigger = begin or _common_beginning([tag["begin"] for tag in tags])
        return _whole(
            {
                "type": "triggered_tags",
                "triggers": [trigger],
                "tags": tags,
                "at_least_one": False,
                "stop_after_first": not parallel,
            }
        )

    def _call(self, tool: Tool, choice: ToolChoice) -> dict[str, Any]:
        bound = tool.parameters is not None and (choice.forced or tool.strict)
        schema = tool.parameters if bound else ANY_OBJECT
        return {
            "type": "tag",
            "begin": self.begin(tool.name),
            "content": {"type": "json_schema", "json_schema": schema},
            "end": self.end,
        }


def forced_calls_schema(tools: Tools, choice: ToolChoice, parallel: bool) -> dict[str, Any]:
    """The JSON schema of an answer that is a list of calls and nothing else.

    For families whose own syntax has no CallShape: any model can be held to it, and
    `parse_forced` of AnswerParsers reads it.
    """
    calls = [
        {
            "type": "object",
            "properties": {
                "name": {"const": tool.name},
                "arguments": tool.parameters if tool.parameters is not None else ANY_OBJECT,
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for tool in tools.tools
        if choice.name in (None, tool.name)
    ]
    schema: dict[str, Any] = {
        "type": "array",
        "minItems": 1,
        "items": calls[0] if len(calls) == 1 else {"anyOf": calls},
    }
    if not parallel:
        schema["maxItems"] = 1
    return schema


def _whole(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "structural_tag", "format": part}


def _constant(text: str) -> dict[str, Any] | None:
    return {"type": "const_string", "value": text} if text else None


def _common_beginning(texts: list[str]) -> str:
    shortest = min(texts, key=len)
    for length in range(len(shortest), 0, -1):
        if all(text.startswith(shortest[:length]) for text in texts):
            return shortest[:length]
    return ""
