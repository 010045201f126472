"""NamedCalls: the tool's name behind a mark, then its arguments as one JSON object."""

from __future__ import annotations

import re
from dataclasses import dataclass

from octavo.entrypoints.tool_parsers.answer_writer import AnswerWriter, NewId, openai_id
from octavo.entrypoints.tool_parsers.interface import ToolParser
from octavo.entrypoints.tool_parsers.json_calls import copy_rest
from octavo.entrypoints.tool_parsers.json_text import copy_container
from octavo.entrypoints.tool_parsers.marks import Marks
from octavo.entrypoints.tool_parsers.source import MAX_NAME, Markers, Source, Steps, markers
from octavo.entrypoints.tool_parsers.structural_tags import CallShape
from octavo.entrypoints.tool_parsers.tools import Tools

_NAME = re.compile(r"[^\s{}()\[\]\"'<>]+")


@dataclass(frozen=True)
class NamedSyntax:
    """What differs between families.

    A call is: `call`, what ends with `before`, the name up to `between`, the arguments, `after`,
    `end`. `sections` are pairs of marks that may stand around all calls. `header` finds the name,
    and the id if the model writes one, in what stands before `between`. `written` is what
    grammars put between `call` and the arguments.
    """

    call: str
    written: str
    between: str
    end: str
    before: str | None = None
    after: str = ""
    sections: tuple[tuple[str, str], ...] = ()
    fence: str = ""  # before the arguments, if they are fenced
    header: re.Pattern[str] = re.compile(r"(?P<name>.*)", re.DOTALL)
    new_id: NewId = openai_id
    own_ids: re.Pattern[str] | None = None  # of the model; others are replaced in its prompt


class NamedCalls(ToolParser):
    """DeepSeek V3 and V3.1, Kimi K2."""

    def __init__(self, syntax: NamedSyntax, marks: Marks) -> None:
        self._syntax = syntax
        self._call = marks(syntax.call)
        self._end = marks(syntax.end)
        sections = {marks(begin): marks(end) for begin, end in syntax.sections}
        self.opens = (self._call, *sections)
        self.closers = {
            self._call: (self._end,),
            **{begin: (self._end, end) for begin, end in sections.items()},
        }
        self.shape = CallShape(
            lambda name: syntax.call + syntax.written.format(name),
            syntax.after + syntax.end,
            syntax.sections[0] if syntax.sections else ("", ""),
        )
        self._stops = markers([*self.opens, self._end, *sections.values()])
        self._between = markers([marks(syntax.between), *self._stops.texts])
        self._before: Markers | None = None
        if syntax.before is not None:
            self._before = markers([marks(syntax.before), *self._stops.texts])

    def read_call(
        self, source: Source, writer: AnswerWriter, opened: str, tools: Tools
    ) -> Steps[None]:
        """See ToolParser."""
        if opened != self._call:
            yield from source.space()
            if not (yield from source.accept(self._call)):
                return
        if self._before is not None:
            _, mark = yield from source.until(self._before, MAX_NAME)
            if not self._is(mark, self._before.texts[0], source):
                return
        header, mark = yield from source.until(self._between, MAX_NAME)
        match = self._syntax.header.fullmatch(header.strip())
        if not self._is(mark, self._between.texts[0], source) or match is None:
            return
        name = match["name"]
        if not _NAME.fullmatch(name):
            return
        if self._syntax.fence and (yield from source.space()) == "`":
            yield from source.accept(self._syntax.fence)
        call_id = match.groupdict().get("id")
        if not (yield from read_arguments(source, writer, name, call_id, self._stops)):
            return
        yield from source.space()
        yield from source.accept(self._syntax.after)
        yield from source.space()
        source.claim()

    def new_id(self, name: str, number: int) -> str:
        """See ToolParser."""
        return self._syntax.new_id(name, number)

    def history_id(self, call_id: str, name: str, number: int) -> str:
        """See ToolParser."""
        own = self._syntax.own_ids
        if own is None or not name or own.fullmatch(call_id):
            return call_id
        return self._syntax.new_id(name, number)

    @staticmethod
    def _is(mark: str | None, wanted: str, source: Source) -> bool:
        """Whether a mark is the wanted one; any other is left for others to read."""
        if mark != wanted and mark is not None:
            source.at -= len(mark)
        return mark == wanted


def read_arguments(
    source: Source, writer: AnswerWriter, name: str, call_id: str | None, stops: Markers
) -> Steps[bool]:
    """A whole call, whose name is known and whose arguments come next; False if none do.

    Arguments that stop being JSON go on to one of `stops`.
    """
    following = yield from source.space()
    if following != "{":
        nothing = source.ended and not source.truncated and not following
        if not nothing and not (yield from source.comes(stops)):
            return False
        writer.start_call(name, call_id)
        writer.arguments("{}")
        writer.end_call()
        source.claim()
        return True
    writer.start_call(name, call_id)
    source.claim()

    def write(text: str) -> None:
        writer.arguments(text)
        source.claim()

    if not (yield from copy_container(source, write)):
        yield from copy_rest(source, writer, stops)
    writer.end_call()
    source.claim()
    return True
