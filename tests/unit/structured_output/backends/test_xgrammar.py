"""Grammars by xgrammar, where it is installed."""

from __future__ import annotations

import json
import random
import re

import jsonschema
import pytest

from octavo.structured_output.backends.xgrammar import XGrammarBackend
from octavo.structured_output.interface import GrammarError
from octavo.types.sampling_params import StructuredOutputsParams
from support.grammars import vocabulary, walk
from support.random_schemas import random_schema

pytest.importorskip("xgrammar")


@pytest.fixture(scope="module")
def backend():
    return XGrammarBackend(vocabulary())


@pytest.mark.parametrize(
    ("spec", "pattern"),
    [
        ({"regex": "[a-c]{3}-[0-9]"}, "[a-c]{3}-[0-9]"),
        ({"choice": ["yes", 'n"o\n', "é"]}, 'yes|n"o\n|é'),
        ({"grammar": 'root ::= "a" b\nb ::= [0-9] "z"'}, "a[0-9]z"),
        ({"json": {"type": "boolean"}}, "true|false"),
    ],
)
def test_kinds(backend, spec, pattern):
    params = StructuredOutputsParams(**spec)
    backend.check(params)
    for seed in range(5):
        text = walk(backend, backend.compile(params), seed)
        assert text is not None
        assert re.fullmatch(pattern, text)


def test_schemas_are_kept_or_refused(backend):
    kept = 0
    for number in range(120):
        schema = random_schema(random.Random(number))
        try:
            grammar = backend.compile(StructuredOutputsParams(json=schema))
        except GrammarError:
            continue
        text = walk(backend, grammar, number, most=4000)
        assert text is not None
        jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)
        kept += 1
    assert kept > 5


@pytest.mark.parametrize(
    "spec",
    [
        {"regex": "[a-"},
        {"grammar": "root ::= missing"},
        {"json": {"type": "integer", "multipleOf": 3}},
        {"json": {"type": "object", "required": ["a"]}},
        {"json": False},
        {"json_object": True, "whitespace_pattern": " "},
        {"structural_tag": "{}"},
    ],
)
def test_refusals(backend, spec):
    params = StructuredOutputsParams(**spec)
    for act in (backend.check, backend.compile):
        with pytest.raises(GrammarError):
            act(params)
