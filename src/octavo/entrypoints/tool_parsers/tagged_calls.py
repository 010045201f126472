"""TaggedCalls: a tag around each call and each parameter, values as plain text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from octavo.entrypoints.tool_parsers.answer_writer import AnswerWriter
from octavo.entrypoints.tool_parsers.interface import ToolParser
from octavo.entrypoints.tool_parsers.json_text import escaped, quoted
from octavo.entrypoints.tool_parsers.marks import Marks
from octavo.entrypoints.tool_parsers.source import MAX_NAME, Source, Steps, markers
from octavo.entrypoints.tool_parsers.tools import Tools
from octavo.entrypoints.tool_parsers.values import json_of_text

_STRING = frozenset({"string"})
_NAME = re.compile(r"[^\s{}()\[\]\"'<>=]+")


@dataclass(frozen=True)
class TaggedSyntax:
    """What differs between families.

    A call is: `call` NAME, one of `name_ends`, parameters, `end`. A parameter is: `key` KEY
    `key_end`, the value, `value_end`. Several calls stand between `section` and `section_end`.
    With `lines` a value stands on lines of its own, whose breaks are not part of it. With
    `attribute` the key ends at a quote, and an attribute of this name may follow that says whether
    the value is a string.
    """

    call: str
    name_ends: tuple[str, ...]
    end: str
    key: str
    key_end: str
    value_end: str
    section: str = ""
    section_end: str = ""
    value: str = ""  # before the value, if that has a tag of its own
    lines: bool = False
    attribute: str = ""


class TaggedCalls(ToolParser):
    """Qwen3-Coder, GLM, MiniMax M2, Seed-OSS, DeepSeek V3.2."""

    def __init__(self, syntax: TaggedSyntax, marks: Marks) -> None:
        self._syntax = syntax
        self._call = marks(syntax.call)
        self._section = marks(syntax.section)
        section_end = marks(syntax.section_end)
        end, key = marks(syntax.end), marks(syntax.key)
        self._end, self._key, self._value = end, key, marks(syntax.value)
        self.opens = tuple(filter(None, (self._section, self._call)))
        self.closers = dict.fromkeys(self.opens, (section_end,)) if section_end else {}
        ends = list(dict.fromkeys(filter(None, (end, section_end))))
        self._name_ends = markers([*map(marks, syntax.name_ends), *ends])
        self._parts = markers([key, *ends])
        self._key_end = markers([marks(syntax.key_end), *ends])
        closing = marks(syntax.value_end)
        stops = [closing]
        if syntax.lines:
            # A closing tag that was forgotten shows by the next tag on a line of its own.
            stops += [f"\n{text}" for text in (closing, key, *ends)]
        self._stops = markers(stops)
        self._attribute = re.compile(
            rf'(?P<key>[^"]*)(?:"\s*{syntax.attribute}="(?P<says>true|false))?'
        )
        self._closings = (closing, "\n" + closing)

    def read_call(
        self, source: Source, writer: AnswerWriter, opened: str, tools: Tools
    ) -> Steps[None]:
        """See ToolParser."""
        if opened != self._call:
            yield from source.space()
            if not (yield from source.accept(self._call)):
                return
        yield from source.space()
        name, mark = yield from source.until(self._name_ends, MAX_NAME)
        name = name.strip()
        if mark is None or not _NAME.fullmatch(name):
            return
        if mark in self._parts.texts:
            source.at -= len(mark)
        started = False
        while True:
            between, mark = yield from source.until(self._parts, MAX_NAME)
            if between.strip() or mark is None:
                break
            key: str | None = None
            if mark == self._key:
                key, type_ = yield from self._read_key(source)
                if key is None:
                    break
            if not started:
                writer.start_call(name)
                writer.arguments("{")
            source.claim()
            if key is None:
                writer.arguments("}")
                writer.end_call()
                if mark != self._end:
                    source.at -= len(mark)
                    source.claim()
                return
            writer.arguments((", " if started else "") + quoted(key) + ": ")
            started = True
            types = tools.types(name, key) if type_ is None else type_
            yield from self._copy_value(source, writer, types)
        if started:
            writer.arguments("" if source.truncated else "}")
            writer.end_call()

    def _read_key(self, source: Source) -> Steps[tuple[str | None, frozenset[str] | None]]:
        """The key, and the types its tag says the value has."""
        key, mark = yield from source.until(self._key_end, MAX_NAME)
        if mark != self._key_end.texts[0]:
            return None, None
        types: frozenset[str] | None = None
        if self._syntax.attribute:
            match = self._attribute.fullmatch(key)
            if match is None:
                return None, None
            key, says = match["key"], match["says"]
            types = {"true": _STRING, "false": frozenset()}.get(says)
        if self._value:
            yield from source.space()
            if not (yield from source.accept(self._value)):
                return None, None
        return key.strip() or None, types

    def _copy_value(
        self, source: Source, writer: AnswerWriter, types: frozenset[str]
    ) -> Steps[None]:
        if self._syntax.lines:
            yield from source.accept("\n")
        source.claim()
        is_text = types == _STRING
        pieces: list[str] = []

        def write(text: str) -> None:
            if is_text:
                writer.arguments(escaped(text))
            else:
                pieces.append(text)

        if is_text:
            writer.arguments('"')
        whole = yield from self._copy_raw(source, write)
        if is_text:
            writer.arguments('"' if whole else "")
        else:
            text = "".join(pieces)
            writer.arguments(json_of_text(text, types) if whole else text)
        source.claim()

    def _copy_raw(self, source: Source, write: Callable[[str], None]) -> Steps[bool]:
        """Write a value's text; False where the answer was cut off within it.

        A closing tag ends it if another tag follows or nothing does: values may hold the tag's
        text, such as the source of a program that writes it.
        """
        while True:
            stop = yield from source.copy_until(self._stops, write)
            if stop is None:
                return not source.truncated
            if stop not in self._closings:
                source.at -= len(stop)
                return True
            source.claim()
            following = yield from source.space()
            if following == "" or (yield from source.comes(self._parts)):
                return True
            write(stop + source.unclaimed())
