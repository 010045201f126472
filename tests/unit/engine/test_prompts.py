"""Every form of a prompt, and what is not one."""

import pytest

from octavo.engine.prompts import MAX_CACHE_SALT, ParsedPrompt, parse_prompt
from octavo.types.errors import RequestError


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("hi", ParsedPrompt("hi", None)),
        ("", ParsedPrompt("", None)),
        ([1, 2], ParsedPrompt(None, [1, 2])),
        ((1, 2), ParsedPrompt(None, [1, 2])),
        ({"prompt": "hi"}, ParsedPrompt("hi", None)),
        ({"prompt_token_ids": [1]}, ParsedPrompt(None, [1])),
        ({"prompt": "hi", "prompt_token_ids": [1]}, ParsedPrompt("hi", [1])),
        ({"prompt": "hi", "cache_salt": "s"}, ParsedPrompt("hi", None, "s")),
        ({"prompt": None, "prompt_token_ids": [1]}, ParsedPrompt(None, [1])),
    ],
)
def test_forms(prompt, expected):
    assert parse_prompt(prompt) == expected


def test_an_explicit_salt_wins():
    assert parse_prompt({"prompt": "a", "cache_salt": "x"}, "y").cache_salt == "y"
    assert parse_prompt("a", "y").cache_salt == "y"


def test_the_callers_list_is_not_kept():
    ids = [1, 2]
    parsed = parse_prompt(ids)
    ids.append(3)
    assert parsed.token_ids == [1, 2]


@pytest.mark.parametrize(
    ("prompt", "salt", "param"),
    [
        (None, None, "prompt"),
        (5, None, "prompt"),
        (b"bytes", None, "prompt"),
        ({}, None, "prompt"),
        ({"prompt": 5}, None, "prompt"),
        ({"prompt": "a", "prompt_embeds": []}, None, "prompt"),
        ({"prompt_token_ids": "12"}, None, "prompt_token_ids"),
        ({"prompt_token_ids": [1, "2"]}, None, "prompt_token_ids"),
        ([1, 2.0], None, "prompt"),
        ([True], None, "prompt"),
        ([[1], [2]], None, "prompt"),
        ("x \ud83d y", None, "prompt"),
        ("a", "", "cache_salt"),
        ("a", 5, "cache_salt"),
        ("a", "\ud83d", "cache_salt"),
        ("a", "s" * (MAX_CACHE_SALT + 1), "cache_salt"),
        ({"prompt": "a", "cache_salt": ["s"]}, None, "cache_salt"),
    ],
)
def test_what_is_no_prompt(prompt, salt, param):
    with pytest.raises(RequestError) as caught:
        parse_prompt(prompt, salt)
    assert caught.value.param == param
