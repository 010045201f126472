"""The grammar of a whole answer: reasoning, content and calls, in any order models write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from octavo.entrypoints.reasoning.interface import ReasoningParser
from octavo.entrypoints.tool_parsers.answer_writer import AnswerWriter
from octavo.entrypoints.tool_parsers.interface import ToolParser
from octavo.entrypoints.tool_parsers.source import Source, Steps, markers
from octavo.entrypoints.tool_parsers.tools import Tools


@dataclass(slots=True)
class AnswerGrammar:
    """Reads one answer from `source` into `writer`.

    `tool_parser` and `reasoning` are None where calls or reasoning are not looked for. `inside`:
    whether the answer begins within reasoning, None if it shows that itself.
    """

    source: Source
    writer: AnswerWriter
    tool_parser: ToolParser | None
    reasoning: ReasoningParser | None
    tools: Tools
    inside: bool | None
    _closers: list[str] = field(default_factory=list)  # of calls, yet to come

    def read(self) -> Steps[None]:
        """The whole answer."""
        inside = self.inside
        if inside is None:
            inside = yield from self._opens_reasoning()
        if inside:
            yield from self._read_reasoning()
        if self.tool_parser is not None and self.tool_parser.leads:
            yield from self._read_bare_calls()
        yield from self._read_content()

    def _opens_reasoning(self) -> Steps[bool]:
        """Whether a start of reasoning comes first, which is read then."""
        if self.reasoning is None:
            return False
        yield from self.source.space()
        for start in self.reasoning.starts:
            if (yield from self.source.accept(start)):
                return True
        self.writer.content(self.source.unclaimed())
        return False

    def _read_reasoning(self) -> Steps[None]:
        """Reasoning up to its end, which a call may be too if special tokens tell it."""
        reasoning, source, writer = self.reasoning, self.source, self.writer
        if reasoning is None:
            return
        writer.begin_reasoning()
        # The prompt has opened the reasoning, and the model may do so once more.
        for start in reasoning.starts:
            yield from source.accept(start)
        source.claim()
        opens = self.tool_parser.token_opens if self.tool_parser is not None else ()
        stops = markers((*reasoning.ends, *opens))
        while True:
            mark = yield from source.copy_until(stops, writer.reasoning)
            if mark is None:
                return
            if mark in reasoning.ends:
                source.claim()
                break
            if (yield from self._read_call(mark, writer.reasoning)):
                break
        writer.end_reasoning()

    def _read_content(self) -> Steps[None]:
        source, writer, parser = self.source, self.writer, self.tool_parser
        opens = () if parser is None else parser.opens
        starts: tuple[str, ...] = ()
        ends: tuple[str, ...] = ()
        if self.reasoning is not None and self.reasoning.starts_anywhere:
            starts, ends = self.reasoning.starts_anywhere, self.reasoning.ends
        while True:
            stops = markers((*opens, *self._closers, *starts, *ends))
            mark = yield from source.copy_until(stops, writer.content)
            if mark is None:
                return
            if mark in self._closers:
                self._closers.remove(mark)
                writer.blank_out()
                source.claim()
            elif mark in opens:
                if (yield from self._read_call(mark, writer.content)) and parser and parser.leads:
                    yield from self._read_bare_calls()
            else:
                source.claim()
                if mark in starts:
                    yield from self._read_reasoning()

    def _read_call(self, mark: str, write_text: Callable[[str], None]) -> Steps[bool]:
        """What follows an opening; False, and text, if it is no call."""
        parser, source, writer = self.tool_parser, self.source, self.writer
        if parser is None:
            return False
        before = writer.num_started
        yield from parser.read_call(source, writer, mark, self.tools)
        if writer.num_started == before:
            write_text(source.unclaimed())
            return False
        self._closers += [c for c in parser.closers.get(mark, ()) if c not in self._closers]
        writer.content(source.unclaimed())
        return True

    def _read_bare_calls(self) -> Steps[None]:
        """Calls without an opening, one after the other."""
        parser, source, writer = self.tool_parser, self.source, self.writer
        while parser is not None:
            following = yield from source.space()
            if following and following in parser.separators and writer.num_started:
                source.at += 1
                following = yield from source.space()
            if not following or following not in parser.leads:
                break
            if not (yield from self._read_call("", writer.content)):
                return
        writer.content(source.unclaimed())
