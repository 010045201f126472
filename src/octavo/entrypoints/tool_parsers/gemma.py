"""GemmaCalls: `call:NAME{key:value,...}` between marks, with marks for quotes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from octavo.entrypoints.tool_parsers.answer_writer import AnswerWriter
from octavo.entrypoints.tool_parsers.interface import ToolParser
from octavo.entrypoints.tool_parsers.json_text import quoted
from octavo.entrypoints.tool_parsers.literals import LiteralSpan, json_of_literal
from octavo.entrypoints.tool_parsers.marks import Marks
from octavo.entrypoints.tool_parsers.source import MAX_NAME, Source, Steps, markers
from octavo.entrypoints.tool_parsers.tools import Tools

_NAME = re.compile(r"[^\s{}()\[\]\"'<>:,]+")


@dataclass(frozen=True)
class GemmaSyntax:
    """The marks of one generation of models."""

    begin: str
    end: str
    quote: str


class GemmaCalls(ToolParser):
    """FunctionGemma, Gemma 4."""

    def __init__(self, syntax: GemmaSyntax, marks: Marks) -> None:
        begin, end = marks(syntax.begin), marks(syntax.end)
        self._quote = marks(syntax.quote)
        self.opens = (begin,)
        self.closers = {begin: (end,)}
        self._span = LiteralSpan((self._quote,))
        self._after_name = markers(("{", "}", begin, end))
        self._after_key = markers((":", "{", "}", ",", begin, end))

    def read_call(
        self, source: Source, writer: AnswerWriter, opened: str, tools: Tools
    ) -> Steps[None]:
        """See ToolParser."""
        yield from source.space()
        if not (yield from source.accept("call:")):
            return
        name, mark = yield from source.until(self._after_name, MAX_NAME)
        if mark != "{" or not _NAME.fullmatch(name.strip()):
            source.at -= len(mark or "")
            return
        started = closed = False
        while not closed:
            following = yield from source.space()
            closed = following == "}"
            if closed or (started and following == ","):
                source.at += 1
                continue
            key, mark = yield from source.until(self._after_key, MAX_NAME)
            key = key.replace(self._quote, "").strip()
            if mark != ":" or not key:
                source.at -= len(mark or "")
                if started:
                    writer.arguments("" if source.truncated else "}")
                    writer.end_call()
                return
            if not started:
                writer.start_call(name.strip())
                writer.arguments("{")
            writer.arguments((", " if started else "") + quoted(key) + ": ")
            source.claim()
            started = True
            text = yield from self._span.read(source)
            source.claim()
            if source.at == len(source.text) and source.truncated:
                writer.arguments(text.lstrip())
                writer.end_call()
                return
            written = json_of_literal(text, (self._quote,))
            writer.arguments(quoted(text.strip()) if written is None else written)
        if not started:
            writer.start_call(name.strip())
            writer.arguments("{")
        writer.arguments("}")
        writer.end_call()
        source.claim()
