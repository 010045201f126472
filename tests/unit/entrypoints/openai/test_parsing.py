"""Bodies -> request Structs, and what a client is told about a bad one."""

import logging

import pytest

from octavo.entrypoints.openai.parsing import RequestParser
from octavo.entrypoints.openai.schema.chat import ChatRequest
from octavo.entrypoints.openai.schema.completion import CompletionRequest
from octavo.types.errors import RequestError


def refuse(body, kind=CompletionRequest, strict=False):
    with pytest.raises(RequestError) as caught:
        RequestParser(strict).parse(body, kind)
    return str(caught.value), caught.value.param


def test_a_good_body():
    body = b'{"prompt": "a", "temperature": 1, "logit_bias": {"5": -1}, "n": null}'
    request = RequestParser(True).parse(body, CompletionRequest)
    assert request.prompt == "a"
    assert request.temperature == 1.0
    assert request.logit_bias == {5: -1.0}
    assert request.n is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (b'"n": "1"', "n"),
        (b'"n": true', "n"),
        (b'"n": 1.5', "n"),
        (b'"n": ' + b"9" * 30_000, "n"),
        (b'"top_p": 1e999', "top_p"),
        (b'"stop": [1]', "stop[0]"),
        (b'"logit_bias": {"x": 1}', "logit_bias"),
        (b'"logit_bias": {"1": "x"}', "logit_bias[...]"),
        (b'"echo": 1', "echo"),
        (b'"stream_options": {"include_usage": "yes"}', "stream_options.include_usage"),
        (b'"temperature": NaN', "temperature"),
        (b'"temperature": -Infinity', "temperature"),
        (b'"min_p": Infinity', "min_p"),
        (b'"stop": "x \\ud83d y"', "stop"),
        (b'"stop": "\\udc00"', "stop"),
    ],
)
def test_a_wrong_value_is_told_with_its_field(fields, param):
    message, named = refuse(b'{"prompt": "a", ' + fields + b"}")
    assert named == param
    assert param.split("[")[0] in message or "surrogate" in message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"{a", "not valid JSON: JSON is malformed"),
        (b'{"prompt": "a"} x', "not valid JSON"),
        (b'{"prompt": "\xff"}', "not valid JSON"),
        (b"[1]", "expected `object`, got `array`"),
        (b'"a"', "expected `object`, got `str`"),
        (b"null", "expected `object`, got `null`"),
        (b'{"n": 1}', "missing required field `prompt`"),
        (b'{"prompt": "a", "x": ' + b"[" * 60_000 + b"]" * 60_000 + b"}", "levels deep"),
        (b'{"prompt": "a", "logit_bias": {"5": NaN}}', "NaN"),
    ],
)
def test_a_broken_body_is_told_plainly(body, words):
    message, _ = refuse(body)
    assert words in message


def test_surrogate_pairs_and_escapes_are_text():
    body = b'{"prompt": "\\ud83d\\ude00 \\u0000 \\\\ud83d"}'
    assert RequestParser(False).parse(body, CompletionRequest).prompt == "😀 \x00 \\ud83d"


@pytest.mark.parametrize(
    "field",
    [b'"best_of": 2', b'"suffix": "x"', b'"guided_regex": "a"'],
)  # fmt: skip
def test_known_fields_that_cannot_be_honoured_are_refused(field):
    message, param = refuse(b'{"prompt": "a", ' + field + b"}")
    assert field.startswith(b'"%b"' % param.encode())
    assert param in message


@pytest.mark.parametrize(
    "field",
    [b'"best_of": 1', b'"suffix": null', b'"use_beam_search": false', b'"length_penalty": 1.0',
     b'"response_format": {"type": "text"}', b'"user": "me"', b'"metadata": {"a": "b"}'],
)  # fmt: skip
def test_the_same_fields_pass_when_they_ask_for_nothing(field):
    RequestParser(True).parse(b'{"prompt": "a", ' + field + b"}", CompletionRequest)


@pytest.mark.parametrize(
    "field",
    [b'"audio": {}', b'"modalities": ["audio"]', b'"functions": [{}]', b'"function_call": "auto"',
     b'"verbosity": "high"', b'"web_search_options": {}'],
)  # fmt: skip
def test_chat_refuses_what_only_chat_has(field):
    _, param = refuse(b'{"messages": [], ' + field + b"}", ChatRequest)
    assert field.startswith(b'"%b"' % param.encode())


def test_an_unknown_field_is_named_once_in_the_log(monkeypatch):
    logger = logging.getLogger("octavo.entrypoints.openai.parsing")
    lines = []
    monkeypatch.setattr(logger, "warning", lambda text, *args: lines.append(text % args))
    parser = RequestParser(False)
    for _ in range(3):
        parser.parse(b'{"prompt": "a", "sparkle": 1}', CompletionRequest)
    assert len(lines) == 1
    assert "'sparkle'" in lines[0]


def test_endless_new_names_do_not_fill_the_log(monkeypatch):
    logger = logging.getLogger("octavo.entrypoints.openai.parsing")
    lines = []
    monkeypatch.setattr(logger, "warning", lambda text, *args: lines.append(text % args))
    parser = RequestParser(False)
    for i in range(1000):
        parser.parse(b'{"prompt": "a", "x%d": 1}' % i, CompletionRequest)
    assert len(lines) <= 256


def test_strict_fields_refuses_an_unknown_field():
    message, param = refuse(b'{"prompt": "a", "sparkle": 1}', strict=True)
    assert param == "sparkle"
    assert "sparkle" in message


def test_the_last_of_two_equal_fields_counts():
    body = b'{"prompt": "a", "n": 1, "n": 2}'
    assert RequestParser(True).parse(body, CompletionRequest).n == 2
