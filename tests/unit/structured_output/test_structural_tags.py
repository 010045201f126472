"""Structural tags: what they allow, and how broken ones are told."""

from __future__ import annotations

import re

import pytest

from octavo.structured_output.interface import GrammarError
from octavo.types.sampling_params import StructuredOutputsParams
from support.grammars import allowed, guidance, vocabulary, walk

NUMBER = {"type": "json_schema", "json_schema": {"type": "integer"}}
CALL = {"type": "tag", "begin": "<f=a>", "content": NUMBER, "end": "</f>"}
OTHER = {
    "type": "tag",
    "begin": "<f=b>",
    "content": {"type": "regex", "pattern": "[x-z]"},
    "end": ".",
}


def tag(part):
    return StructuredOutputsParams(structural_tag={"type": "structural_tag", "format": part})


def text_of(spec, seed=0):
    guidance().check(spec)
    return walk(guidance(), guidance().compile(spec), seed, most=3000)


@pytest.mark.parametrize(
    ("part", "pattern"),
    [
        ({"type": "const_string", "value": 'a"b\n'}, 'a"b\n'),
        (CALL, "<f=a>-?[0-9]+</f>"),
        ({"type": "grammar", "grammar": 'root ::= "q" | "r"'}, "q|r"),
        ({"type": "or", "elements": [CALL, OTHER]}, r"<f=a>-?[0-9]+</f>|<f=b>[xyz]\."),
        ({"type": "sequence", "elements": [OTHER, OTHER]}, r"(<f=b>[xyz]\.){2}"),
        (
            {
                "type": "tags_with_separator",
                "tags": [CALL, OTHER],
                "separator": ", ",
                "at_least_one": True,
            },
            r"(<f=a>-?[0-9]+</f>|<f=b>[xyz]\.)(, (<f=a>-?[0-9]+</f>|<f=b>[xyz]\.))*",
        ),
        (
            {
                "type": "tags_with_separator",
                "tags": [OTHER],
                "separator": "",
                "stop_after_first": True,
            },
            r"(<f=b>[xyz]\.)?",
        ),
        (
            {"type": "tag", "begin": "<", "content": {"type": "any_text"}, "end": ">"},
            r"<[^>]*>",
        ),
    ],
)
def test_parts(part, pattern):
    for seed in range(4):
        text = text_of(tag(part), seed)
        assert text is not None
        assert re.fullmatch(pattern, text, re.DOTALL), text


def test_a_trigger_binds_what_follows_and_free_text_stays_free():
    part = {"type": "triggered_tags", "triggers": ["<f="], "tags": [CALL, OTHER]}
    grammar = guidance().compile(tag(part))
    tokenizer = vocabulary().tokenizer
    grammar.accept(tokenizer.encode("any text <f", False))
    assert len(allowed(guidance(), grammar)) > 200
    assert grammar.may_end
    grammar.accept(tokenizer.encode("=", False))
    assert allowed(guidance(), grammar) == set(tokenizer.encode("ab", False))
    grammar.accept(tokenizer.encode("b>z.", False))
    assert grammar.may_end
    assert len(allowed(guidance(), grammar)) > 200


def test_one_call_and_no_more():
    part = {
        "type": "triggered_tags",
        "triggers": ["<f="],
        "tags": [OTHER],
        "at_least_one": True,
        "stop_after_first": True,
    }
    grammar = guidance().compile(tag(part))
    grammar.accept(vocabulary().tokenizer.encode("hm <f=", False))
    assert not grammar.may_end
    grammar.accept(vocabulary().tokenizer.encode("b>z.", False))
    assert allowed(guidance(), grammar) == set(vocabulary().eos_token_ids)


def test_the_older_form():
    spec = StructuredOutputsParams(
        structural_tag={
            "type": "structural_tag",
            "structures": [{"begin": "<f=a>", "schema": {"type": "null"}, "end": "</f>"}],
            "triggers": ["<f"],
        }
    )
    grammar = guidance().compile(spec)
    grammar.accept(vocabulary().tokenizer.encode("so <f=a>null</f> and", False))
    assert grammar.may_end


def test_a_special_token_is_meant_as_itself():
    tokenizer = vocabulary().tokenizer
    (name,) = [name for name in tokenizer.special_tokens.values() if name == tokenizer.eos_token]
    special = next(
        (
            text
            for text in tokenizer.convert_ids_to_tokens(sorted(tokenizer.all_special_ids))
            if text and text != name and len(text) > 2
        ),
        None,
    )
    if special is None:
        pytest.skip("the tokenizer has one special token only")
    grammar = guidance().compile(tag({"type": "const_string", "value": f"{special}x"}))
    (token_id,) = tokenizer.convert_tokens_to_ids([special])
    assert allowed(guidance(), grammar) == {token_id}
    grammar.accept([token_id])
    assert allowed(guidance(), grammar) == set(tokenizer.encode("x", False))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON"),
        ("[]", "must be"),
        ('{"type": "other"}', "must be"),
        ('{"type": "structural_tag"}', "structures"),
        ('{"format": {"type": "qwen"}}', "none of"),
        ('{"format": {"type": "const_string"}}', "value must be a string"),
        ('{"format": {"type": "any_text", "excludes": []}}', "excludes"),
        ('{"format": {"type": "sequence", "elements": []}}', "not empty"),
        (
            '{"format": {"type": "triggered_tags", "triggers": ["x"], "tags": '
            '[{"begin": "y", "content": {"type": "any_text"}, "end": ""}]}}',
            "none of the triggers",
        ),
        (
            '{"format": {"type": "json_schema", "json_schema": {"not": {}}}}',
            "'not'",
        ),
        ('{"format": ' + '{"type": "sequence", "elements": [' * 40 + "1" + "]}" * 40 + "}", "deep"),
    ],
)
def test_broken_ones_are_told(text, words):
    spec = StructuredOutputsParams(structural_tag=text)
    with pytest.raises(GrammarError, match=words):
        guidance().check(spec)
