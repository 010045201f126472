"""MistralCalls: [TOOL_CALLS], then a list of JSON objects or a name with its arguments."""

from __future__ import annotations

import re

from octavo.entrypoints.tool_parsers.answer_writer import AnswerWriter, mistral_id, short_id
from octavo.entrypoints.tool_parsers.interface import ToolParser
from octavo.entrypoints.tool_parsers.json_calls import JsonSyntax, json_shape, read_json_calls
from octavo.entrypoints.tool_parsers.marks import Marks
from octavo.entrypoints.tool_parsers.named_calls import read_arguments
from octavo.entrypoints.tool_parsers.source import MAX_NAME, Source, Steps, markers
from octavo.entrypoints.tool_parsers.tools import Tools

_BEGIN, _ID, _ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_NAME = re.compile(r"[^\s{}()\[\]\"'<>]+")
_PLAIN_ID = re.compile(r"[a-zA-Z0-9]{9}")
_SYNTAX = JsonSyntax(tags=((_BEGIN, ""),), in_list=True, new_id=mistral_id)


class MistralCalls(ToolParser):
    """Every generation of Mistral's models, which take ids of 9 letters or digits only."""

    def __init__(self, marks: Marks) -> None:
        self._begin = marks(_BEGIN)
        self._id = marks(_ID)
        self._arguments = marks(_ARGUMENTS)
        self.opens = (self._begin,)
        self.shape = json_shape(_SYNTAX)
        self._stops = markers(self.opens)
        self._marks = markers((self._arguments, self._id, self._begin))
        self._after_name = markers((self._id, self._arguments, "{", "\n", self._begin))
        self._after_id = markers((self._arguments, "{", "\n", self._begin))

    def read_call(
        self, source: Source, writer: AnswerWriter, opened: str, tools: Tools
    ) -> Steps[None]:
        """See ToolParser."""
        first = yield from source.space()
        if first and first in "[{" and not (yield from source.comes(self._marks)):
            yield from read_json_calls(source, writer, _SYNTAX, self._stops, bare=False)
            return
        name, mark = yield from source.until(self._after_name, MAX_NAME)
        call_id: str | None = None
        if mark == self._id:
            call_id, mark = yield from source.until(self._after_id, MAX_NAME)
        if mark == "{" or mark == self._begin:
            source.at -= len(mark)
        name = name.strip()
        if mark in (self._arguments, "{") and _NAME.fullmatch(name):
            good_id = call_id if call_id and _PLAIN_ID.fullmatch(call_id) else None
            yield from read_arguments(source, writer, name, good_id, self._stops)

    def new_id(self, name: str, number: int) -> str:
        """See ToolParser."""
        return mistral_id(name, number)

    def history_id(self, call_id: str, name: str, number: int) -> str:
        """The templates refuse ids of any other form than their own."""
        return call_id if _PLAIN_ID.fullmatch(call_id) else short_id(call_id)
