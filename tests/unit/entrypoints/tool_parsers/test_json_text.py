"""JSON that arrives in pieces: copied as it is written, or read where it is short."""

import itertools
import json

import pytest

from octavo.entrypoints.tool_parsers.json_text import (
    copy_container,
    copy_string,
    escaped,
    quoted,
    read_string,
    skip_value,
)
from octavo.entrypoints.tool_parsers.source import Source


def run(grammar, pieces):
    """(what the grammar returns, the text it leaves unread)."""
    source = Source()
    steps = grammar(source)
    result, left = None, None
    for piece in pieces:
        source.push(piece)
        if left is not None:
            continue
        try:
            next(steps)
        except StopIteration as end:
            result, left = end.value, True
    source.end(False)
    if left is None:
        with pytest.raises(StopIteration) as caught:
            next(steps)
        result = caught.value.value
    return result, source.text[source.at :]


def every_cut(text):
    yield [text]
    yield list(text)
    for cut in range(1, len(text)):
        yield [text[:cut], text[cut:]]


@pytest.mark.parametrize(
    ("text", "copied", "whole"),
    [
        ('{"a": [1, {"b": "}\\""}]}, rest', '{"a": [1, {"b": "}\\""}]}', True),
        ("[]x", "[]", True),
        ('{"a": 1', '{"a": 1', False),
        ('{"a": tru<', '{"a": tru', False),
        ("{'a'}", "{", False),
        ('{"a\ud800"}', '{"a', False),
        ('{"a\\', '{"a\\', False),
    ],
)
def test_containers(text, copied, whole):
    for pieces in every_cut(text):
        written = []
        result, left = run(lambda source: copy_container(source, written.append), pieces)  # noqa: B023
        assert ("".join(written), result) == (copied, whole)
        assert text.endswith(left)
        assert copied + left == text or left == ""


@pytest.mark.parametrize(
    ("text", "value", "whole"),
    [
        ('a\\n\\"\\\\\\/"x', 'a\n"\\/', True),
        ('\\u00e9\\ud83d\\ude00"', "é😀", True),
        ('\\ud83d\\ud83d\\ude00\\ude00a\\ud83d"', "\ufffd😀\ufffda\ufffd", True),
        ('\\ud83da"', "\ufffda", True),
        ('\\q\\uzzzz"', "\\q\\uzzzz", True),
        ("never ends", "never ends", False),
        ("half \\u00", "half \\u00", False),
        ("mark \ud801", "mark ", False),
    ],
)
def test_strings(text, value, whole):
    for pieces in every_cut(text):
        written = []
        result, _ = run(lambda source: copy_string(source, written.append), pieces)  # noqa: B023
        assert ("".join(written), result) == (value, whole)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"name" :', "name"),
        ('"\\u00e9"', "é"),
        ("name", None),
        ('"a', None),
        ('"\\ud800"', None),
        ('"' + "x" * 300 + '"', None),
    ],
)
def test_short_strings(text, value):
    for pieces in itertools.chain([[text], list(text)]):
        assert run(read_string, pieces)[0] == value


@pytest.mark.parametrize(
    ("text", "skipped"),
    [
        ('"a\\"b",', True),
        ("{[}],", True),
        (" 1.5e3,", True),
        ("null,", True),
        (",", False),
        ("", False),
    ],
)
def test_values_that_are_passed_over(text, skipped):
    for pieces in ([text], list(text)):
        result, left = run(skip_value, pieces)
        assert result is skipped
        assert left in (",", "")


def test_text_as_json():
    for text in ('a"\\\n\x00é\u2028', ""):
        assert json.loads(quoted(text)) == text
        assert quoted(text) == f'"{escaped(text)}"'
