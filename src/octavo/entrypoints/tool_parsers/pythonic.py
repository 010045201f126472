"""PythonicCalls: calls written as Python would call functions, alone or in a list."""

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

_NAME = re.compile(r"[^\W\d][\w.\-]*")
_KEYWORD = re.compile(r"[^\W\d]\w*")
_AFTER_NAME = markers(("(", ")", "[", "]", "{", "}", "\n", ",", "="))
_AFTER_KEYWORD = markers(("=", "(", ")", "[", "]", "{", "}", "\n", ",", "'", '"'))
_SPAN = LiteralSpan()


@dataclass(frozen=True)
class PythonicSyntax:
    """What differs between families.

    `tags` are pairs of marks around the calls. With `bare`, a list of calls may stand without
    marks where content begins. With `lines`, calls between the marks are not in a list.
    """

    tags: tuple[tuple[str, str], ...] = ()
    bare: bool = False
    lines: bool = False


class PythonicCalls(ToolParser):
    """Llama 4, Olmo 3, LFM2."""

    def __init__(self, syntax: PythonicSyntax, marks: Marks) -> None:
        self._lines = syntax.lines
        self.opens = tuple(marks(begin) for begin, _ in syntax.tags)
        self.closers = {marks(begin): (marks(end),) for begin, end in syntax.tags}
        self.leads = "[" if syntax.bare else ""

    def read_call(
        self, source: Source, writer: AnswerWriter, opened: str, tools: Tools
    ) -> Steps[None]:
        """See ToolParser."""
        first = yield from source.space()
        in_list = first == "["
        if in_list:
            source.at += 1
        elif not self._lines:
            return
        while (yield from _read_one(source, writer)):
            following = yield from source.space()
            if in_list and following == ",":
                source.at += 1
            elif in_list:
                if following == "]":
                    source.at += 1
                    source.claim()
                return
            elif not _NAME.match(following):
                return


def _read_one(source: Source, writer: AnswerWriter) -> Steps[bool]:
    """One call; False, with nothing claimed, if there is none."""
    yield from source.space()
    name, mark = yield from source.until(_AFTER_NAME, MAX_NAME)
    if mark != "(" or not _NAME.fullmatch(name.strip()):
        return False
    started = closed = False
    while not closed:
        following = yield from source.space()
        closed = following == ")"
        if closed or (started and following == ","):
            source.at += 1
            continue
        key, mark = yield from source.until(_AFTER_KEYWORD, MAX_NAME)
        if mark != "=" or not _KEYWORD.fullmatch(key.strip()):
            source.at -= len(mark or "")
            if started:
                writer.arguments("" if source.truncated else "}")
                writer.end_call()
            return False
        if not started:
            writer.start_call(name.strip())
            writer.arguments("{")
        writer.arguments((", " if started else "") + quoted(key.strip()) + ": ")
        source.claim()
        started = True
        text = yield from _SPAN.read(source)
        source.claim()
        if source.at == len(source.text) and source.truncated:
            writer.arguments(text.lstrip())
            writer.end_call()
            return True
        written = json_of_literal(text)
        writer.arguments(quoted(text.strip()) if written is None else written)
    if not started:
        writer.start_call(name.strip())
        writer.arguments("{")
    writer.arguments("}")
    writer.end_call()
    source.claim()
    return True
