"""Events: what an answer consists of, in the order the model wrote it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ReasoningText:
    """More of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ContentText:
    """More of the text that is meant for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool call begins; `index` counts the calls of one answer from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the arguments' JSON text, as the model wrote it."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The arguments of a call are complete, or the answer ended within them."""

    index: int


Event = ReasoningText | ContentText | CallStart | CallArguments | CallEnd


@dataclass(slots=True)
class ParsedCall:
    """One tool call, put together."""

    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class ParsedAnswer:
    """All events of one answer, put together."""

    reasoning: str = ""
    content: str = ""
    calls: list[ParsedCall] = field(default_factory=list)

    @classmethod
    def of(cls, events: Iterable[Event]) -> ParsedAnswer:
        """The sum of events, which must begin with the first one."""
        answer = cls()
        reasoning: list[str] = []
        content: list[str] = []
        arguments: list[list[str]] = []
        for event in events:
            match event:
                case ReasoningText():
                    reasoning.append(event.text)
                case ContentText():
                    content.append(event.text)
                case CallStart():
                    answer.calls.append(ParsedCall(event.id, event.name))
                    arguments.append([])
                case CallArguments():
                    arguments[event.index].append(event.text)
                case CallEnd():
                    pass
        answer.reasoning, answer.content = "".join(reasoning), "".join(content)
        for call, pieces in zip(answer.calls, arguments, strict=True):
            call.arguments = "".join(pieces)
        return answer
