"""Grammars by llguidance: every kind, ends, refusals, limits."""

from __future__ import annotations

import json
import random
import re

import jsonschema
import numpy as np
import pytest

from octavo.structured_output.backends.guidance import GuidanceBackend
from octavo.structured_output.interface import GrammarError, mask_width
from octavo.types.sampling_params import StructuredOutputsParams
from support.grammars import allowed, guidance, vocabulary, walk
from support.random_schemas import random_schema


def ids(text: str) -> list[int]:
    return vocabulary().tokenizer.encode(text, False)


@pytest.mark.parametrize(
    ("spec", "pattern"),
    [
        ({"regex": "[a-c]{3}-[0-9]/?"}, "[a-c]{3}-[0-9]/?"),
        ({"choice": ["yes", 'n"o\n', "é/x"]}, 'yes|n"o\n|é/x'),
        ({"grammar": 'root ::= "a" b\nb ::= [0-9]+ "z"'}, "a[0-9]+z"),
        ({"grammar": 'start: "a" B\nB: /[0-9]{2}/'}, "a[0-9]{2}"),
        ({"json": {"const": [1, "a"]}}, r'\[1,( |\r?\n {0,24}|\n\t{0,8})?"a"\]'),
        ({"json": {"const": [1, 2]}, "disable_any_whitespace": True}, r"\[1,2\]"),
        ({"json": {"const": [1, 2]}, "whitespace_pattern": "-"}, r"\[1-?,-?2\]"),
        ({"json": True, "disable_any_whitespace": True}, None),
        ({"json_object": True}, None),
    ],
)
def test_every_kind(spec, pattern):
    params = StructuredOutputsParams(**spec)
    guidance().check(params)
    grammar = guidance().compile(params)
    for seed in range(5):
        text = walk(guidance(), grammar.copy(), seed)
        if pattern is not None:
            assert text is not None
            assert re.fullmatch(pattern, text)
        elif text is not None:
            json.loads(text)


def test_random_schemas_are_kept():
    for number in range(40):
        schema = random_schema(random.Random(number))
        grammar = guidance().compile(StructuredOutputsParams(json=schema))
        text = walk(guidance(), grammar, number, most=4000)
        assert text is not None
        jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"regex": "[a-"}, "unclosed"),
        ({"regex": "foo**"}, "repeats"),
        ({"regex": "a{2}{3}"}, "repeats"),
        ({"regex": "(?<x>"}, "regex"),
        ({"regex": "(?=a)b"}, "look-around"),
        ({"grammar": "root ::= missing"}, "missing"),
        ({"grammar": "start: ("}, "grammar"),
        ({"json": {"type": "string", "format": "nonsense"}}, "format"),
        ({"json": {"type": "integer", "minimum": 3, "maximum": 1}}, "Unsatisfiable"),
        ({"json": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}, "anyOf"),
        ({"json": {"$ref": "https://example.com/schema"}}, "json"),
    ],
)
def test_refusals_name_the_field(spec, words):
    params = StructuredOutputsParams(**spec)
    for act in (guidance().check, guidance().compile):
        with pytest.raises(GrammarError, match=words) as caught:
            act(params)
        assert caught.value.param == params.kind


@pytest.mark.parametrize("regex", ["[*+]*", r"\**", "a+?b", "(a*)*", r"[\]*]{2}"])
def test_repeats_in_sets_and_escapes_are_not_slips(regex):
    guidance().check(StructuredOutputsParams(regex=regex))


def test_all_end_tokens_come_exactly_where_the_text_may_end():
    known = vocabulary()
    ends = (known.eos_token_ids[0], 4, 7)
    backend = GuidanceBackend(type(known)(known.tokenizer, known.size, ends))
    grammar = backend.compile(StructuredOutputsParams(regex="ab?"))
    assert not allowed(backend, grammar) & set(ends)
    assert not grammar.may_end
    grammar.accept(ids("a"))
    assert set(ends) <= allowed(backend, grammar)
    assert grammar.may_end


def test_copies_go_their_own_ways():
    grammar = guidance().compile(StructuredOutputsParams(regex="ab|cd"))
    other = grammar.copy()
    grammar.accept(ids("a"))
    assert allowed(guidance(), grammar) == set(ids("b"))
    assert allowed(guidance(), other) == {*ids("a"), *ids("c")}
    with pytest.raises(GrammarError):
        other.accept(ids("b"))
    assert grammar.forced() == ids("b")


def test_a_grammar_that_grows_too_costly_says_so(monkeypatch):
    monkeypatch.setattr("octavo.structured_output.backends.guidance._STEP_ITEMS", 200)
    grammar = guidance().compile(StructuredOutputsParams(grammar='start: x\nx: x x | /[a-z]/ | ""'))
    masks = np.zeros((1, mask_width(vocabulary().size)), np.int32)
    for _ in range(300):
        guidance().fill([(grammar, 0)], masks)
        if grammar.error is not None:
            break
        grammar.accept(ids("q"))
    assert grammar.error is not None
    assert "\n" not in grammar.error


def test_tokens_beyond_the_tokenizer_never_come():
    grammar = guidance().compile(StructuredOutputsParams(regex="(.|\n)*"))
    tokenizer = vocabulary().tokenizer
    assert max(allowed(guidance(), grammar)) < tokenizer.vocab_size
