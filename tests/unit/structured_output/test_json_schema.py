"""Which schemas are taken, and how the others are told."""

from __future__ import annotations

import pytest

from octavo.structured_output.interface import GrammarError
from octavo.structured_output.json_schema import MAX_NODES, Dialect, checked_schema, read_schema
from octavo.types.sampling_params import StructuredOutputsParams

# Every keyword of JSON Schema (draft 4 to 2020-12) that says which values are valid and that no
# library enforces.
UNENFORCED = {
    "contains": {"type": "integer"},
    "dependencies": {"a": ["b"]},
    "dependentRequired": {"a": ["b"]},
    "dependentSchemas": {"a": {}},
    "else": {},
    "if": {},
    "maxContains": 1,
    "minContains": 1,
    "not": {},
    "propertyNames": {"pattern": "a"},
    "then": {},
    "uniqueItems": True,
    "$dynamicRef": "#a",
    "$recursiveRef": "#",
    "contentEncoding": "base64",
    "divisibleBy": 2,
    "nullable": True,
}


@pytest.mark.parametrize("keyword", UNENFORCED)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda part: part,
        lambda part: {"properties": {"p": part}},
        lambda part: {"items": part},
        lambda part: {"items": [part]},
        lambda part: {"anyOf": [True, {"additionalProperties": part}]},
        lambda part: {"$defs": {"unused": part}},
        lambda part: {"patternProperties": {"^a": {"prefixItems": [part]}}},
    ],
)
def test_a_keyword_that_is_not_enforced_is_named_wherever_it_stands(keyword, wrap):
    with pytest.raises(GrammarError) as caught:
        checked_schema(wrap({keyword: UNENFORCED[keyword]}))
    assert repr(keyword) in str(caught.value)
    assert caught.value.param == "json"


@pytest.mark.parametrize("keyword", ["unevaluatedItems", "unevaluatedProperties"])
@pytest.mark.parametrize("beside", [{"allOf": [{}]}, {"$ref": "#"}, {"anyOf": [True]}])
def test_what_others_leave_unevaluated_is_refused(keyword, beside):
    with pytest.raises(GrammarError, match=keyword):
        checked_schema({"items": {keyword: False, **beside}})


@pytest.mark.parametrize(
    ("schema", "plain"),
    [
        (
            {"properties": {"a": {}}, "unevaluatedProperties": False},
            {"properties": {"a": {}}, "additionalProperties": False},
        ),
        (
            {"additionalProperties": True, "unevaluatedProperties": False},
            {"additionalProperties": True},
        ),
        ({"prefixItems": [True], "unevaluatedItems": {}}, {"prefixItems": [True], "items": {}}),
        ({"items": [True], "unevaluatedItems": False}, {"items": [True], "additionalItems": False}),
        ({"minItems": 2.0, "maxLength": 3.0}, {"minItems": 2, "maxLength": 3}),
        ({"$dynamicAnchor": "a", "type": "null"}, {"type": "null"}),
    ],
)
def test_what_can_be_said_more_plainly_is(schema, plain):
    assert checked_schema(schema) == plain


def test_an_id_beside_a_reference_means_other_things_in_other_drafts():
    schema = {"items": {"$id": "https://example.com/a", "$ref": "#/b"}}
    with pytest.raises(GrammarError, match=r"\$id at schema.items"):
        checked_schema(schema)
    checked_schema(schema | {"$schema": "https://json-schema.org/draft/2020-12/schema"})
    checked_schema({"$id": "https://example.com/a", "$ref": "#/b"})


@pytest.mark.parametrize("name", ["maxlength", "x-guidance", "Type"])
def test_slips_of_the_pen_are_told(name):
    with pytest.raises(GrammarError, match=name):
        checked_schema({name: 1})


def test_data_is_not_read_as_schemas():
    data = {"not": {}, "if": 1}
    schema = {"const": data, "default": data, "examples": [data], "properties": {"not": {}}}
    assert checked_schema(dict(schema)) == schema
    assert checked_schema({"enum": [data], "x-mine": 1}) == {"enum": [data], "x-mine": 1}


def test_what_asks_for_nothing_is_dropped():
    assert checked_schema({"uniqueItems": False, "nullable": False, "type": "array"}) == {
        "type": "array"
    }


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"exclusiveMinimum": True}, "draft 6"),
        ({"minItems": 10**6}, "above"),
        ({"maxProperties": 1e9}, "above"),
        ({"additionalItems": False, "items": {}}, "list of items"),
        ({"items": [{}], "prefixItems": [{}]}, "prefixItems"),
        ({"properties": []}, "must be an object"),
        ({"anyOf": {}}, "must be a list"),
        ({"items": 3}, "object or a boolean"),
        ({"required": "a"}, "list of strings"),
        ({"format": 3}, "must be a string"),
        ({"anyOf": [{}] * (MAX_NODES + 1)}, "subschemas"),
        (3, "object or a boolean"),
    ],
)
def test_what_is_no_schema_is_refused(schema, words):
    with pytest.raises(GrammarError, match=words):
        checked_schema(schema)


def test_closing_objects_leaves_what_they_say_themselves():
    schema = checked_schema(
        {
            "properties": {"a": {"properties": {}, "additionalProperties": True}},
            "items": {"type": "object"},
        },
        closed=True,
    )
    assert schema["additionalProperties"] is False
    assert schema["properties"]["a"]["additionalProperties"] is True
    assert "additionalProperties" not in schema["items"]


def test_text_is_read_with_numbers_of_any_size():
    spec = StructuredOutputsParams(json={"maximum": 10**30})
    assert read_schema(spec)["maximum"] == 10**30
    for text in ("{", "", "[" * 5000):
        with pytest.raises(GrammarError):
            read_schema(StructuredOutputsParams(json=text))


def test_a_dialect_takes_less():
    weak = Dialect(frozenset({"multipleOf"}), frozenset({"date"}), single=True)
    for schema in (
        {"type": "integer", "multipleOf": 2},
        {"type": "string", "format": "email"},
        {"enum": [1], "type": "integer"},
        {"minimum": 3},
        {"type": "object", "required": ["a"]},
    ):
        checked_schema(dict(schema))
        with pytest.raises(GrammarError):
            checked_schema(dict(schema), dialect=weak)
