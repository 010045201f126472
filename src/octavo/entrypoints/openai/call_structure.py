"""The grammar of an answer whose tool calls are not left to the model."""

from __future__ import annotations

from octavo.entrypoints.tool_parsers.interface import ToolParser
from octavo.entrypoints.tool_parsers.structural_tags import ToolChoice, forced_calls_schema
from octavo.entrypoints.tool_parsers.tools import Tools
from octavo.types.errors import RequestError
from octavo.types.sampling_params import StructuredOutputsParams


def call_structure(
    parser: ToolParser | None, tools: Tools, choice: ToolChoice, parallel: bool
) -> StructuredOutputsParams | None:
    """What holds the model to its calls: a structural tag, or the schema of a JSON list of them.

    None where it is free: tool_choice "auto" and no strict tool. Raises RequestError for a strict
    tool in a syntax that no grammar can spell.
    """
    strict = next((tool.name for tool in tools.tools if tool.strict), None)
    if not choice.forced and strict is None:
        return None
    tag = None if parser is None else parser.structural_tag(tools, choice, parallel)
    if tag is not None:
        return StructuredOutputsParams(structural_tag=tag)
    if not choice.forced:
        raise RequestError(
            f"tools: {strict!r:.64} is strict, which this model's syntax of calls does not allow "
            'for with tool_choice "auto"; leave strict out or set tool_choice to "required"',
            "tools",
        )
    return StructuredOutputsParams(json=forced_calls_schema(tools, choice, parallel))
