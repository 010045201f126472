"""The work per piece is bounded by the piece, not by the text so far: counted, not timed."""

import sys

import pytest

from octavo.entrypoints.tool_parsers.interface import TOOL_PARSERS
from octavo.entrypoints.tool_parsers.source import MAX_NAME, Markers, Source
from support.parser_cases import CASES, FAMILIES
from support.parsers import TEXT_ONLY, make_parser, parse

HELD = 64  # characters of marks, escapes and blanks that may be looked at again


def work_of(text, family, monkeypatch, piece=3, reasoning=None):
    """Characters that grammars had before them, summed over all pieces."""
    seen = 0
    push = Source.push

    def counting(self, more):
        nonlocal seen
        push(self, more)
        seen += len(self.text)

    with monkeypatch.context() as patch:
        patch.setattr(Source, "push", counting)
        parser = make_parser(family, reasoning)
        for at in range(0, len(text), piece):
            parser.feed(text[at : at + piece])
        parser.finish()
    return seen


def long_answers(family):
    """Texts whose long part stands in the content, in names, in arguments, between calls."""
    filler = "lorem ipsum {[('\"<dolor> \\n " * 400
    yield filler
    for case in (case for case in CASES if case.family == family):
        for at in (0, len(case.text) // 3, len(case.text) // 2, len(case.text)):
            yield case.text[:at] + filler + case.text[at:]
        yield case.text * 60


@pytest.mark.parametrize("family", FAMILIES)
def test_a_piece_costs_its_own_length(family, monkeypatch):
    for text in long_answers(family):
        num_pieces = -(-len(text) // 3)
        assert work_of(text, family, monkeypatch) <= len(text) + HELD * num_pieces


def test_reasoning_costs_its_own_length(monkeypatch):
    text = "<think>" + "a < b </th " * 2000 + "</think>" + "c\n" * 2000
    work = work_of(text, "hermes", monkeypatch, reasoning="qwen3")
    assert work <= len(text) + HELD * (len(text) // 3 + 1)


def test_unclaimed_text_is_put_together_once(monkeypatch):
    """An object that might become a call until its last key is kept in pieces."""
    joined = 0
    unclaimed = Source.unclaimed

    def counting(self):
        nonlocal joined
        text = unclaimed(self)
        joined += len(text)
        return text

    monkeypatch.setattr(Source, "unclaimed", counting)
    text = '<tool_call>{"arguments": {' + '"a": "b", ' * 3000 + '"c": 1}, "nome": "f"}</tool_call>'
    parser = make_parser("hermes")
    for letter in text:
        parser.feed(letter)
    parser.finish()
    assert joined <= len(text) + HELD


@pytest.mark.parametrize("family", FAMILIES)
def test_openings_without_calls_are_not_searched_to_the_end_each(family, monkeypatch):
    searched = 0
    search = Markers.search

    def counting(self, text, start, room=sys.maxsize):
        nonlocal searched
        match = search(self, text, start, room)
        far = min(len(text), start + room + self.longest)
        searched += (far if match is None else match.end()) - start
        return match

    monkeypatch.setattr(Markers, "search", counting)
    for opening in TOOL_PARSERS.get(family)(TEXT_ONLY).opens:
        searched = 0
        parse((opening + " ") * 2000, family)
        assert searched <= 2000 * 2 * (MAX_NAME + HELD)
