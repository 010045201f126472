"""What grammar engines are told about calls agrees with what the parsers read."""

import json

import jsonschema
import pytest

from octavo.entrypoints.tool_parsers.families import ANY_JSON
from octavo.entrypoints.tool_parsers.interface import TOOL_PARSERS
from octavo.entrypoints.tool_parsers.structural_tags import ToolChoice, forced_calls_schema
from octavo.entrypoints.tool_parsers.tools import Tool, Tools
from support.parser_cases import FAMILIES
from support.parsers import TEXT_ONLY, TOOLS, parse

SHAPED = [name for name in FAMILIES if TOOL_PARSERS.get(name)(TEXT_ONLY).shape is not None]


def spell(part, arguments):
    """One text that a tag of forced calls allows: every call of it, with these arguments."""
    match part["type"]:
        case "sequence":
            return "".join(spell(element, arguments) for element in part["elements"])
        case "const_string":
            return part["value"]
        case "json_schema":
            return arguments
        case "tag":
            return part["begin"] + spell(part["content"], arguments) + part["end"]
        case "tags_with_separator":
            tags = part["tags"][:1] if part["stop_after_first"] else part["tags"]
            return part["separator"].join(spell(tag, arguments) for tag in tags)
    raise AssertionError(part["type"])


def test_which_families_have_a_shape():
    assert {"hermes", "mistral", "deepseek_v3", "kimi_k2", "llama3_json"} <= set(SHAPED)


@pytest.mark.parametrize("family", SHAPED)
@pytest.mark.parametrize("parallel", [True, False])
def test_what_a_forced_tag_allows_is_parsed_as_these_calls(family, parallel):
    parser = TOOL_PARSERS.get(family)(TEXT_ONLY)
    for choice, names in ((ToolChoice("required"), ["f", "g"]), (ToolChoice("named", "g"), ["g"])):
        tag = parser.structural_tag(TOOLS, choice, parallel)
        assert tag["type"] == "structural_tag"
        text = spell(tag["format"], '{"a": 1}')
        parsed = parse(text, family, range(1, len(text)))
        wanted = names if parallel else names[:1]
        assert parsed.calls == [(name, '{"a": 1}') for name in wanted]
        assert parsed.answer.content == ""


@pytest.mark.parametrize("family", SHAPED)
def test_auto_binds_strict_tools_only(family):
    tools = Tools([Tool("f", {"type": "object", "x": 1}, True), Tool("g", {"type": "object"})])
    tag = TOOL_PARSERS.get(family)(TEXT_ONLY).structural_tag(tools, ToolChoice("auto"), True)
    assert tag["format"]["type"] == "triggered_tags"
    assert tag["format"]["triggers"][0]
    assert not tag["format"]["at_least_one"]
    assert json.dumps(tag).count('"x": 1') == 1


def test_a_description_changes_nothing_but_itself():
    def shape(description):
        schema = {"type": "object", "description": description}
        tag = TOOL_PARSERS.get("hermes")(TEXT_ONLY).structural_tag(
            Tools([Tool("f", schema)]), ToolChoice("required"), True
        )
        del tag["format"]["tags"][0]["content"]["json_schema"]["description"]
        return json.dumps(tag)

    assert len({shape(text) for text in ("a", '"{}\\', "</tool_call>", "\n", "\u2028")}) == 1


def test_the_form_of_calls_that_any_model_can_be_held_to():
    schema = forced_calls_schema(TOOLS, ToolChoice("required"), True)
    calls = [{"name": "f", "arguments": {"s": "x"}}, {"name": "g", "arguments": {}}]
    jsonschema.validate(calls, schema)
    for wrong in ([], [{"name": "h", "arguments": {}}], [{"name": "f"}], "no"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)
    one = forced_calls_schema(TOOLS, ToolChoice("named", "g"), False)
    assert one["maxItems"] == 1
    jsonschema.validate(calls[1:], one)
    assert ANY_JSON(TEXT_ONLY).leads == "{["
