"""tools and tool_choice as requests send them."""

import pytest

from octavo.entrypoints.tool_parsers.request import read_choice, read_tools
from octavo.entrypoints.tool_parsers.structural_tags import ToolChoice
from octavo.entrypoints.tool_parsers.tools import schema_types
from octavo.types.errors import RequestError


def tool(name="f", **function):
    return {"type": "function", "function": {"name": name, **function}}


def test_tools_are_read():
    tools = read_tools([tool(parameters={"properties": {"a": {"type": "string"}}}, strict=True)])
    assert tools.get("f").strict
    assert tools.types("f", "a") == {"string"}
    assert tools.types("f", "b") == tools.types("g", "a") == frozenset()
    assert not read_tools(None)


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ([{"type": "web_search"}], "tools[0]"),
        ([{"type": "function"}], "tools[0]"),
        ([tool(), {"type": "function", "function": {}}], "tools[1].function.name"),
        ([tool(name="")], "tools[0].function.name"),
        ([tool(name="x" * 257)], "tools[0].function.name"),
        ([tool(parameters="x")], "tools[0].function.parameters"),
        ([tool(), tool()], "tools"),
        ([tool(name=str(i)) for i in range(1025)], "tools"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(tools, param):
    with pytest.raises(RequestError) as caught:
        read_tools(tools)
    assert caught.value.param == param


def test_choices():
    tools = read_tools([tool()])
    named = {"type": "function", "function": {"name": "f"}}
    assert read_choice(None, tools) == read_choice("auto", tools) == ToolChoice("auto")
    assert read_choice(None, read_tools([])) == ToolChoice("none")
    assert read_choice("auto", read_tools([])) == ToolChoice("none")
    assert read_choice("none", tools) == ToolChoice("none")
    assert read_choice("required", tools) == ToolChoice("required")
    assert read_choice(named, tools) == ToolChoice("named", "f")


@pytest.mark.parametrize(
    "choice", ["any", {}, {"type": "function"}, {"type": "function", "function": {"name": "g"}}]
)
def test_choices_that_make_no_sense(choice):
    with pytest.raises(RequestError) as caught:
        read_choice(choice, read_tools([tool()]))
    assert caught.value.param == "tool_choice"


def test_a_call_that_is_asked_for_needs_tools():
    for choice in ("required", {"type": "function", "function": {"name": "f"}}):
        with pytest.raises(RequestError, match="offers none"):
            read_choice(choice, read_tools([]))


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"anyOf": [{"type": "integer"}, {"oneOf": [{"type": "array"}]}]}, {"integer", "array"}),
        ({"enum": ["a", 1, None, True, 1.5, [], {}]}, {
            "string", "integer", "null", "boolean", "number", "array", "object"}),
        ({"const": "x"}, {"string"}),
        ({"type": "whatever"}, set()),
        (True, set()),
        (None, set()),
    ],
)  # fmt: skip
def test_types_of_a_schema(schema, types):
    assert schema_types(schema) == types


def test_types_of_a_schema_that_holds_itself_are_bounded():
    schema = {}
    schema["anyOf"] = [schema, schema]
    assert schema_types(schema) == frozenset()
