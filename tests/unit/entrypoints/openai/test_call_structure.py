"""What holds a model to its tool calls."""

from __future__ import annotations

import pytest

from octavo.entrypoints.openai.call_structure import call_structure
from octavo.entrypoints.tool_parsers.interface import TOOL_PARSERS
from octavo.entrypoints.tool_parsers.marks import Marks
from octavo.entrypoints.tool_parsers.structural_tags import ToolChoice
from octavo.entrypoints.tool_parsers.tools import Tool, Tools
from octavo.structured_output.backends.guidance import GuidanceBackend
from octavo.types.errors import RequestError

PLAIN = Tools([Tool("f", {"type": "object", "properties": {"a": {"type": "integer"}}})])
STRICT = Tools([Tool("f", {"type": "object"}, strict=True)])


def parser(name):
    return TOOL_PARSERS.get(name)(Marks(None))


@pytest.mark.parametrize("name", TOOL_PARSERS.names())
@pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice("named", "f")])
@pytest.mark.parametrize("parallel", [False, True])
def test_every_syntax_has_a_grammar_for_forced_calls(name, choice, parallel):
    found = call_structure(parser(name), PLAIN, choice, parallel)
    assert found is not None
    GuidanceBackend.check(found)


@pytest.mark.parametrize("name", TOOL_PARSERS.names())
def test_strict_tools_are_bound_or_refused(name):
    assert call_structure(parser(name), PLAIN, ToolChoice("auto"), True) is None
    if parser(name).shape is None:
        with pytest.raises(RequestError) as caught:
            call_structure(parser(name), STRICT, ToolChoice("auto"), True)
        assert caught.value.param == "tools"
        return
    found = call_structure(parser(name), STRICT, ToolChoice("auto"), True)
    assert found is not None
    assert found.kind == "structural_tag"
    GuidanceBackend.check(found)
