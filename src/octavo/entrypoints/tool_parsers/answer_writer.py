"""AnswerWriter: where grammars put reasoning, content and calls; it decides which blanks count."""

from __future__ import annotations

import hashlib
import re
import secrets
import string
from collections.abc import Callable, Mapping

from octavo.entrypoints.tool_parsers.events import (
    CallArguments,
    CallEnd,
    CallStart,
    ContentText,
    Event,
    ReasoningText,
)

_LETTERS = string.ascii_letters + string.digits

_TextEvent = ReasoningText | ContentText | CallArguments

NewId = Callable[[str, int], str]
"""(name of the tool, number of the call) -> the call's id."""


def openai_id(name: str, number: int) -> str:
    """An id as OpenAI's: "call_" and 24 letters or digits."""
    del name, number
    return "call_" + "".join(secrets.choice(_LETTERS) for _ in range(24))


def mistral_id(name: str, number: int) -> str:
    """An id of the only form that Mistral's templates take back: 9 letters or digits."""
    del name, number
    return "".join(secrets.choice(_LETTERS) for _ in range(9))


def short_id(call_id: str) -> str:
    """Nine letters or digits in the place of an id of another form; equal ids stay equal."""
    number = int.from_bytes(hashlib.blake2b(call_id.encode(), digest_size=8).digest())
    letters = []
    for _ in range(9):
        number, rest = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[rest])
    return "".join(letters)


class AnswerWriter:
    """Collects the events of one answer.

    Blanks belong to the syntax where they stand next to it: those before and after a call, the
    line breaks within and behind the tags of reasoning. Where nothing of that kind is found the
    content is what the model wrote, byte for byte.

    `spellings` maps the characters that stand for special tokens to their spelling. Calls beyond
    `most_calls` are dropped.
    """

    def __init__(
        self,
        *,
        new_id: NewId | None = None,
        spellings: Mapping[str, str] | None = None,
        most_calls: int | None = None,
        hold_blanks: bool = True,
    ) -> None:
        self.num_calls = 0
        self.num_started = 0  # with those that were dropped
        self._new_id = new_id or openai_id
        self._ids: set[str] = set()
        self._most_calls = most_calls
        self._hold_blanks = hold_blanks
        self._events: list[Event] = []
        self._kind: type[_TextEvent] = ContentText  # of the texts in _run
        self._run: list[str] = []
        self._spellings = dict(spellings or {})
        self._spelled = re.compile("[" + "".join(self._spellings) + "]") if spellings else None
        self._blanks: list[str] = []  # of the content, until it is known what follows
        self._breaks: list[str] = []  # the same of the reasoning's line breaks
        self._gap = ""  # before the next content
        self._skip = ""  # blanks to leave out where content goes on
        self._wrote_content = False
        self._wrote_reasoning = False
        self._in_block = False  # of reasoning, with text in it
        self._after_call = False
        self._in_call = False
        self._muted = False

    def take(self) -> list[Event]:
        """The events since the last call; runs of one kind are one event."""
        self._close_run()
        events, self._events = self._events, []
        return events

    def begin_reasoning(self) -> None:
        """An opening tag; a further block of reasoning begins on a new line."""
        self.blank_out()
        self._in_block = False

    def reasoning(self, text: str) -> None:
        """Add reasoning; line breaks next to its tags are left out."""
        if not self._in_block:
            text = text.lstrip("\n")
        body = text.rstrip("\n")
        if body:
            if not self._in_block and self._wrote_reasoning:
                self._add(ReasoningText, "\n")
            self._in_block = self._wrote_reasoning = True
            self._add(ReasoningText, "".join(self._breaks) + body)
            self._breaks.clear()
        if len(body) < len(text):
            self._breaks.append(text[len(body) :])

    def end_reasoning(self) -> None:
        """The closing tag: the line breaks that follow it are the syntax's."""
        self._breaks.clear()
        self._skip = "\n"

    def begin_content(self) -> None:
        """A further part of the content, which begins on a new line."""
        self._gap = "\n" if self._wrote_content else ""

    def content(self, text: str) -> None:
        """Add content."""
        if self._skip:
            text = text.lstrip(self._skip)
            if not text:
                return
            self._skip = ""
        if not self._hold_blanks:
            self._write_content(text)
            return
        body = text.rstrip()
        if body:
            self._write_content("".join(self._blanks) + body)
            self._blanks.clear()
        if len(body) < len(text):
            self._blanks.append(text[len(body) :])

    def start_call(self, name: str, call_id: str | None = None) -> None:
        """A call begins; the blanks before it are the syntax's."""
        self.blank_out()
        self._close_run()
        self._muted = self._most_calls is not None and self.num_calls >= self._most_calls
        self._in_call = True
        self.num_started += 1
        if self._muted:
            return
        index, self.num_calls = self.num_calls, self.num_calls + 1
        if call_id is None or call_id in self._ids:
            call_id = self._new_id(name, index)
        self._ids.add(call_id)
        self._events.append(CallStart(index, call_id, name))

    def arguments(self, text: str) -> None:
        """Add to the arguments of the call that has begun."""
        if not self._muted:
            self._add(CallArguments, text)

    def end_call(self) -> None:
        """The call is complete."""
        self._close_run()
        if self._in_call and not self._muted:
            self._events.append(CallEnd(self.num_calls - 1))
        self._in_call = False
        self._after_call = True
        self._skip = "" if self._wrote_content else string.whitespace

    def blank_out(self) -> None:
        """Syntax follows: blanks before it are not content."""
        self._blanks.clear()
        self._breaks.clear()

    def finish(self) -> None:
        """No text follows: blanks at the very end are what the model wrote."""
        if self._in_call:
            self.end_call()
        self._add(ReasoningText, "".join(self._breaks))
        if not self._after_call:
            self._write_content("".join(self._blanks))
        self.blank_out()

    def _write_content(self, text: str) -> None:
        if text:
            self._wrote_content = True
            self._after_call = False
            self._add(ContentText, self._gap + text)
            self._gap = ""

    def _add(self, kind: type[_TextEvent], text: str) -> None:
        if not text:
            return
        if self._spelled is not None and not text.isascii():
            text = self._spelled.sub(lambda match: self._spellings[match.group()], text)
        if kind is not self._kind:
            self._close_run()
            self._kind = kind
        self._run.append(text)

    def _close_run(self) -> None:
        if not self._run:
            return
        text = "".join(self._run)
        self._run.clear()
        if self._kind is CallArguments:
            self._events.append(CallArguments(self.num_calls - 1, text))
        elif self._kind is ReasoningText:
            self._events.append(ReasoningText(text))
        else:
            self._events.append(ContentText(text))
