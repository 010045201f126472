"""Short ways to end a text."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import pytest

from octavo.structured_output.completion import CompletionSearch
from octavo.types.sampling_params import StructuredOutputsParams
from support.grammars import guidance, vocabulary

NODE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["next"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}


def ids(text: str) -> list[int]:
    return vocabulary().tokenizer.encode(text, False)


def ended(spec: dict, begun: str = "", most: int = 400, barred=()) -> str | None:
    search = CompletionSearch(vocabulary(), guidance().fill)
    grammar = guidance().compile(StructuredOutputsParams(**spec))
    grammar.accept(ids(begun))
    found = search.find(grammar, most, barred)
    if found is None:
        return None
    assert len(found) <= most
    assert grammar.completes(found)
    assert set(found).isdisjoint(barred)
    return begun + b"".join(map(vocabulary().tokenizer.token_bytes, found)).decode()


@pytest.mark.parametrize(
    ("schema", "begun"),
    [
        ({"type": "object"}, ""),
        ({"type": "object"}, '{"a'),
        ({"type": "object"}, '{"a":{"b":[[["'),
        ({"type": "array", "minItems": 3, "items": {"type": "integer", "minimum": 1000}}, "[1"),
        ({"type": "string", "minLength": 7}, ""),
        ({"type": "string", "pattern": "^[0-9]{3}-[a-f]{2}$"}, '"1'),
        ({"type": "string", "format": "date-time"}, ""),
        ({"enum": ["something", "somewhere", None]}, '"some'),
        (NODE, ""),
        (NODE, '{"next":{"next":{'),
    ],
)
def test_json_ends_as_its_schema_wants(schema, begun):
    text = ended({"json": schema}, begun)
    assert text is not None
    jsonschema.validate(json.loads(text), schema)


def test_nothing_is_opened_that_need_not_be():
    schema = {"type": "object", "properties": {"a": {"type": "array"}, "b": {"type": "object"}}}
    assert ended({"json": schema}) == "{}"
    schema["required"] = ["a", "b"]
    text = ended({"json": schema, "disable_any_whitespace": True})
    assert text == '{"a":[],"b":{}}'
    assert ended({"json": {"type": "array", "items": NODE, "$defs": NODE["$defs"]}}) == "[]"


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"regex": "[0-9]{8}x*"}, None),
        ({"choice": ["constantinople", "istanbul"]}, None),
        ({"grammar": 'root ::= "(" root ")" | "x"'}, "x"),
        ({"grammar": 'root ::= ("ab" | "c")+ "."'}, None),
    ],
)
def test_other_grammars(spec, text):
    found = ended(spec)
    assert found is not None
    assert text is None or found == text


def test_what_does_not_fit_or_has_no_end_in_sight_is_none():
    assert ended({"regex": "[0-9]{8}"}, most=7) is None
    assert ended({"regex": "[0-9]{8}"}, most=8) is not None
    assert ended({"regex": "(.|\n)*the very end"}) is None
    assert ended({"regex": "ab*"}, "a", most=0) == "a"


def test_barred_tokens_are_gone_round():
    assert ended({"regex": "(a|b)c"}, barred=set(ids("b"))) == "ac"
    assert ended({"regex": "(a|b)c"}, barred=set(ids("a"))) == "bc"
    assert ended({"regex": "(a|b)c"}, barred=set(ids("c"))) is None


def test_the_grammar_stays_where_it_is():
    grammar = guidance().compile(StructuredOutputsParams(json_object=True))
    grammar.accept(ids('{"a'))
    masks = np.zeros((2, (vocabulary().size + 31) // 32), np.int32)
    guidance().fill([(grammar, 0)], masks)
    CompletionSearch(vocabulary(), guidance().fill).find(grammar, 99)
    assert not grammar.completes(ids('"'))
    assert grammar.completes(ids('":1}'))
    guidance().fill([(grammar, 1)], masks)
    assert (masks[0] == masks[1]).all()
