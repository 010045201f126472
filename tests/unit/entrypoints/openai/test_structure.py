"""response_format and structured_outputs as one constraint."""

from __future__ import annotations

import pytest

from octavo.entrypoints.openai.structure import read_structure, structure_names
from octavo.types.errors import RequestError

SCHEMA = {"type": "object"}


@pytest.mark.parametrize(
    ("shape", "fields", "kind", "value"),
    [
        (None, None, None, None),
        ({"type": "text"}, {}, None, None),
        ({"type": "json_object"}, None, "json_object", True),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
            None,
            "json",
            '{"type":"object"}',
        ),
        (None, {"json": SCHEMA}, "json", '{"type":"object"}'),
        ({"type": "text"}, {"regex": "a"}, "regex", "a"),
        (None, {"choice": ["a", "b"]}, "choice", ["a", "b"]),
        (None, {"json_object": True, "disable_any_whitespace": True}, "json_object", True),
    ],
)
def test_what_is_asked_for(shape, fields, kind, value):
    spec = read_structure(shape, fields)
    if kind is None:
        assert spec is None
    else:
        assert spec.kind == kind
        assert getattr(spec, kind) == value


@pytest.mark.parametrize(
    ("shape", "fields", "param"),
    [
        ({"type": "yaml"}, None, "response_format.type"),
        ({}, None, "response_format.type"),
        ({"type": "json_schema"}, None, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {}}, None, "response_format.json_schema.schema"),
        (
            {"type": "json_schema", "json_schema": {"schema": {}, "shcema": 1}},
            None,
            "response_format.json_schema",
        ),
        ({"type": "json_object"}, {"regex": "a"}, "structured_outputs"),
        (None, {"regex": "a", "choice": ["b"]}, "structured_outputs"),
        (None, {"regex": 3}, "structured_outputs"),
        (None, {"reasoning": []}, "structured_outputs"),
        (None, {"yaml": "a"}, "structured_outputs"),
        (None, {"choice": []}, "structured_outputs.choice"),
        (None, {"regex": "a", "whitespace_pattern": " "}, "structured_outputs.whitespace_pattern"),
    ],
)
def test_what_is_wrong_names_its_field(shape, fields, param):
    with pytest.raises(RequestError) as caught:
        read_structure(shape, fields)
    assert caught.value.param == param


def test_clients_hear_their_own_words():
    assert structure_names(None) == structure_names({"type": "text"}) == {}
    names = structure_names({"type": "json_schema"})
    assert names["structured_outputs.json"] == "response_format.json_schema.schema"
