"""Python's literals and marks for quotes, turned into JSON."""

import json

import pytest

from octavo.entrypoints.tool_parsers.literals import json_of_literal
from octavo.entrypoints.tool_parsers.values import json_of_text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("None", None),
        ("true", True),
        ("-1.50", -1.5),
        ("1_000", 1000),
        (".5", 0.5),
        ("'a\\x41\\u00e9\\N'", "aAé\\N"),
        ("'\\ud83d\\ude00\\ud83d'", "😀\ufffd"),
        ("r'\\d'", "\\d"),
        ('"""a"b"""', 'a"b'),
        ("(1, [2], {3: 'x', 'k': ()})", [1, [2], {"3": "x", "k": []}]),
        ("{}", {}),
        ("[1,]", [1]),
    ],
)
def test_literals(text, value):
    assert json.loads(json_of_literal(text)) == value


@pytest.mark.parametrize(
    "text", ["", "x", "1+2", "f(x)", "'a", "[1", "{1, 2}", "1 2", "[" * 70 + "]" * 70]
)
def test_what_is_no_literal(text):
    assert json_of_literal(text) is None


def test_fences_quote_without_escapes():
    assert json_of_literal("{a:<q>x\\'<q>}", ("<q>",)) == '{"a": "x\\\\\'"}'


@pytest.mark.parametrize(
    ("text", "types", "written"),
    [
        ("5", {"integer"}, "5"),
        (" 5\n", {"number"}, "5"),
        ("5", {"string"}, '"5"'),
        ("5", {"string", "null"}, '"5"'),
        ("null", {"string", "null"}, "null"),
        ("True", {"boolean"}, "true"),
        ("five", {"integer"}, '"five"'),
        ('{"a": 1.50}', {"object"}, '{"a": 1.50}'),
        ("{'a': 1}", {"object"}, '{"a": 1}'),
        ("[1, NaN]", {"array"}, '"[1, NaN]"'),
        ("007", set(), '"007"'),
        ("7", set(), "7"),
        ("text", set(), '"text"'),
        ("[1]", set(), "[1]"),
    ],
)
def test_values_by_the_types_of_their_schema(text, types, written):
    assert json_of_text(text, frozenset(types)) == written
