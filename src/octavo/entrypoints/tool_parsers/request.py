"""What a chat request says about tools, checked: the functions it offers and its tool_choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.entrypoints.tool_parsers.structural_tags import ToolChoice
from octavo.entrypoints.tool_parsers.tools import Tool, Tools
from octavo.types.errors import RequestError

MAX_TOOLS = 1024
_MAX_NAME = 256  # characters


def read_tools(tools: Sequence[Mapping[str, Any]] | None) -> Tools:
    """The functions of `tools`. Raises RequestError with the path at fault."""
    if not tools:
        return Tools()
    if len(tools) > MAX_TOOLS:
        raise RequestError(f"tools has {len(tools)} entries; at most {MAX_TOOLS}", "tools")
    found = []
    for i, tool in enumerate(tools):
        where = f"tools[{i}]"
        function = tool.get("function")
        if tool.get("type", "function") != "function" or not isinstance(function, Mapping):
            raise RequestError(
                f'{where} must be {{"type": "function", "function": {{...}}}}; other kinds of '
                "tools are not served",
                where,
            )
        found.append(read_function(function, f"{where}.function"))
    offered = Tools(found)
    twice = next((tool.name for tool in found if offered.get(tool.name) is not tool), None)
    if twice is not None:
        raise RequestError(f"tools has two functions named {twice!r}", "tools")
    return offered


def read_function(function: Mapping[str, Any], where: str) -> Tool:
    """One function: name, parameters (a JSON schema), strict. Raises RequestError."""
    name = function.get("name")
    if not isinstance(name, str) or not name or len(name) > _MAX_NAME:
        raise RequestError(
            f"{where}.name must be a string of 1 to {_MAX_NAME} characters", f"{where}.name"
        )
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise RequestError(f"{where}.parameters must be a JSON schema", f"{where}.parameters")
    return Tool(name, parameters, function.get("strict") is True)


def read_choice(choice: str | Mapping[str, Any] | None, tools: Tools) -> ToolChoice:
    """What `tool_choice` asks for; without it "auto" if there are tools. Raises RequestError."""
    if choice is None:
        return ToolChoice("auto" if tools else "none")
    if isinstance(choice, str):
        match choice:
            case "none":
                return ToolChoice("none")
            case "auto":
                return ToolChoice("auto" if tools else "none")
            case "required":
                _check_offered(tools)
                return ToolChoice("required")
        raise RequestError(
            f'tool_choice={choice!r:.64} is none of "none", "auto", "required" and '
            '{"type": "function", "function": {"name": ...}}',
            "tool_choice",
        )
    function = choice.get("function")
    name = function.get("name") if isinstance(function, Mapping) else choice.get("name")
    if choice.get("type") != "function" or not isinstance(name, str):
        raise RequestError(
            'tool_choice must be {"type": "function", "function": {"name": ...}}', "tool_choice"
        )
    _check_offered(tools)
    if tools.get(name) is None:
        raise RequestError(f"tool_choice names {name!r:.64}, which tools lacks", "tool_choice")
    return ToolChoice("named", name)


def _check_offered(tools: Tools) -> None:
    if not tools:
        raise RequestError("tool_choice asks for a call, and tools offers none", "tool_choice")
