"""Tool call and reasoning parsers over text: what they make of it, however it is cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from octavo.entrypoints.reasoning.interface import REASONING_PARSERS, ReasoningParser
from octavo.entrypoints.tool_parsers.answer_parser import AnswerParser
from octavo.entrypoints.tool_parsers.events import Event, ParsedAnswer
from octavo.entrypoints.tool_parsers.harmony import HarmonyCalls
from octavo.entrypoints.tool_parsers.interface import TOOL_PARSERS
from octavo.entrypoints.tool_parsers.marks import Marks
from octavo.entrypoints.tool_parsers.tools import Tool, Tools

TEXT_ONLY = Marks(None)
TOOLS = Tools(
    [
        Tool(
            "f",
            {
                "type": "object",
                "properties": {
                    "s": {"type": "string"},
                    "n": {"type": "integer"},
                    "o": {"type": "object"},
                    "b": {"type": "boolean"},
                },
            },
        ),
        Tool("g", {"type": "object", "properties": {}}),
    ]
)


def make_parser(
    family: str | None,
    reasoning: str | None = None,
    *,
    inside: bool | None = None,
    tools: Tools = TOOLS,
    most_calls: int | None = None,
) -> AnswerParser:
    """A parser of text; every mark is text. Ids are id0, id1, ... where the model writes none."""
    tool_parser = None
    if family is not None:
        tool_parser = TOOL_PARSERS.get(family)(TEXT_ONLY)
        tool_parser.new_id = lambda name, number: f"id{number}"
    thoughts = None
    if reasoning is not None:
        thoughts = ReasoningParser(REASONING_PARSERS.get(reasoning), TEXT_ONLY)
    harmony = None
    if isinstance(tool_parser, HarmonyCalls) or (thoughts is not None and thoughts.harmony):
        harmony = HarmonyCalls(TEXT_ONLY)
    return AnswerParser(
        tool_parser=tool_parser,
        reasoning=thoughts,
        tools=tools,
        inside=inside,
        marks=TEXT_ONLY,
        token_text=None,
        most_calls=most_calls,
        harmony=harmony,
    )


@dataclass
class Parsed:
    """What a parser made of a text."""

    answer: ParsedAnswer
    events: list[Event]
    finish_reason: str

    @property
    def calls(self) -> list[tuple[str, str]]:
        return [(call.name, call.arguments) for call in self.answer.calls]

    @property
    def ids(self) -> list[str]:
        return [call.id for call in self.answer.calls]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Parsed)
            and self.answer == other.answer
            and self.finish_reason == other.finish_reason
        )


def parse(text: str, family: str | None, cuts: Iterable[int] = (), **options) -> Parsed:
    """Parse a text that is cut at the given places; `truncated` says that it was cut off."""
    truncated = options.pop("truncated", False)
    parser = make_parser(family, **options)
    edges = [0, *cuts, len(text)]
    events = []
    for begin, end in itertools.pairwise(edges):
        events += parser.feed(text[begin:end])
    events += parser.finish(truncated)
    reason = parser.finish_reason("length" if truncated else "stop")
    return Parsed(ParsedAnswer.of(events), events, reason)
