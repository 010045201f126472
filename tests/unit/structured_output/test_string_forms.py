"""Dates, times and blanks, as the grammars made from schemas take them."""

from __future__ import annotations

import datetime
import re

import pytest

from octavo.structured_output.interface import GrammarError
from octavo.structured_output.string_forms import FORMAT_PATTERNS, ecma_pattern
from octavo.types.sampling_params import StructuredOutputsParams
from support.grammars import guidance, vocabulary


def takes(schema: dict, text: str) -> bool:
    grammar = guidance().compile(StructuredOutputsParams(json=schema))
    try:
        grammar.accept(vocabulary().tokenizer.encode(f'"{text}"', False))
    except GrammarError:
        return False
    return grammar.may_end


def test_dates_are_those_of_the_calendar():
    whole = re.compile(FORMAT_PATTERNS["date"])
    for year in (1, 4, 100, 400, 1900, 2000, 2021, 2024, 9999):
        for month in range(14):
            for day in range(33):
                try:
                    datetime.date(year, month, day)
                    exists = True
                except ValueError:
                    exists = False
                text = f"{year:04}-{month:02}-{day:02}"
                assert bool(whole.search(text)) == exists, text
    assert not whole.search("0000-01-01")


@pytest.mark.parametrize(
    ("name", "text", "right"),
    [
        ("date", "2024-02-29", True),
        ("date", "2023-02-29", False),
        ("time", "23:59:59Z", True),
        ("time", "23:59:59.123456789+05:30", True),
        ("time", "23:59:60Z", False),
        ("time", "24:00:00Z", False),
        ("time", "10:00:00", False),
        ("date-time", "2024-02-29T00:00:00z", True),
        ("date-time", "2023-02-29T00:00:00z", False),
        ("date-time", "2024-02-29 00:00:00z", False),
    ],
)
def test_formats_in_schemas(name, text, right):
    assert takes({"format": name}, text) is right
    assert takes({"format": name, "pattern": "^[0-9]"}, text) is right
    assert takes({"format": name, "pattern": "^x"}, text) is False


@pytest.mark.parametrize(
    ("pattern", "text", "right"),
    [
        (r"^\S$", "\ufeff", False),
        (r"^\s$", "\ufeff", True),
        (r"^\s$", "\u0085", False),
        (r"^[^\s]$", "\u0085", True),
        (r"^[^\s]$", "\u2003", False),
        (r"^[\S]$", "x", True),
        (r"^a\s?$", "a ", True),
    ],
)
def test_blanks_are_those_of_ecmascript(pattern, text, right):
    assert takes({"pattern": pattern}, text) is right
    assert takes({"type": "string", "allOf": [{"pattern": pattern}]}, text) is right


def test_an_escaped_backslash_is_no_class():
    assert ecma_pattern(r"\\s\\\S") == r"\\s\\" + ecma_pattern(r"\S")
