"""Harmony: the messages, channels and recipients in which gpt-oss writes an answer.

The format: https://github.com/openai/harmony, docs/format.md.
"""

from __future__ import annotations

import re

from octavo.entrypoints.tool_parsers.answer_writer import AnswerWriter
from octavo.entrypoints.tool_parsers.interface import ToolParser
from octavo.entrypoints.tool_parsers.marks import Marks
from octavo.entrypoints.tool_parsers.source import Source, Steps, markers
from octavo.entrypoints.tool_parsers.tools import Tools

_START, _CHANNEL, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_MOST_HEADER = 1024  # characters
_RECIPIENT = re.compile("\\bto=([^\\s<\ud800-\udfff]+)")
_CHANNEL_NAME = re.compile(r"\s*(\w*)")
_FUNCTIONS = "functions."


class HarmonyCalls(ToolParser):
    """gpt-oss. The whole answer has one grammar: see read_answer."""

    def __init__(self, marks: Marks) -> None:
        self._start, self._channel, self._message = map(marks, (_START, _CHANNEL, _MESSAGE))
        ends = tuple(map(marks, _ENDS))
        self._heads = markers((self._message, *ends))
        self._begins = markers((self._start, self._channel))
        self._ends = markers((*ends, self._start))
        self.opens = (marks(" to=functions."),)
        self.closers = {self.opens[0]: (marks("<|call|>"),)}

    def read_call(
        self, source: Source, writer: AnswerWriter, opened: str, tools: Tools
    ) -> Steps[None]:
        """Calls are messages of the answer: none begins by a mark within the content."""
        yield from source.peek()

    def read_answer(self, source: Source, writer: AnswerWriter, *, with_calls: bool) -> Steps[None]:
        """A whole answer, which follows the prompt's `<|start|>assistant`.

        Without a message's marks it is content.
        """
        yield from source.space()
        in_header = yield from source.accept("to=")
        writer.content("" if in_header else source.unclaimed())
        while True:
            if not in_header:
                mark = yield from source.copy_until(self._begins, writer.content)
                if mark is None:
                    return
            _, mark = yield from source.until(self._heads, _MOST_HEADER)
            header = source.unclaimed()
            if mark == self._message:
                channel, recipient = self._addressed(header)
                yield from self._read_body(source, writer, channel, recipient if with_calls else "")
            elif mark is None:
                writer.content(header)
            in_header = False

    def _addressed(self, header: str) -> tuple[str, str]:
        """The channel and the recipient of a message, either of which may come first."""
        recipient = _RECIPIENT.search(header.replace(self._channel, " "))
        named = header.partition(self._channel)[2]
        channel = _CHANNEL_NAME.match(_RECIPIENT.sub(" ", named))
        return channel[1] if channel else "", recipient[1] if recipient else ""

    def _read_body(
        self, source: Source, writer: AnswerWriter, channel: str, recipient: str
    ) -> Steps[None]:
        if recipient and recipient != "assistant" and channel != "final":
            writer.start_call(recipient.removeprefix(_FUNCTIONS))
            something = False

            def write(text: str) -> None:
                nonlocal something
                something = True
                writer.arguments(text)

            mark = yield from source.copy_until(self._ends, write)
            if not something and not source.truncated:
                writer.arguments("{}")
            writer.end_call()
        elif channel == "analysis":
            writer.begin_reasoning()
            mark = yield from source.copy_until(self._ends, writer.reasoning)
            writer.end_reasoning()
        else:
            writer.begin_content()
            mark = yield from source.copy_until(self._ends, writer.content)
        if mark == self._start:
            source.at -= len(mark)
        source.claim()
