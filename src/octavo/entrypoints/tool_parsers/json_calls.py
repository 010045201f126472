"""JsonCalls: calls as JSON objects with a name and arguments, between marks or on their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from octavo.entrypoints.tool_parsers.answer_writer import AnswerWriter, NewId, openai_id
from octavo.entrypoints.tool_parsers.interface import ToolParser
from octavo.entrypoints.tool_parsers.json_text import (
    copy_container,
    copy_string,
    quoted,
    read_string,
    read_word,
    skip_value,
)
from octavo.entrypoints.tool_parsers.marks import Marks
from octavo.entrypoints.tool_parsers.source import Markers, Source, Steps, markers
from octavo.entrypoints.tool_parsers.structural_tags import CallShape
from octavo.entrypoints.tool_parsers.tools import Tools

_WRAPPERS = ("function", "tool_call")  # keys under which some models put the call once more


@dataclass(frozen=True)
class JsonSyntax:
    """What differs between families.

    `tags` are pairs of marks around an object or a list of objects; the second may be "". With
    `bare`, calls may stand without marks where content begins: there every key must be known,
    because JSON is also a thing that users ask for.
    """

    tags: tuple[tuple[str, str], ...] = ()
    bare: bool = False
    separators: str = ""
    names: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments", "parameters")
    others: tuple[str, ...] = ("type", "id")  # further keys of bare calls
    in_list: bool = False  # how calls are to be written: one list of them, or object by object
    new_id: NewId = openai_id


class JsonCalls(ToolParser):
    """Hermes, Qwen, Llama 3, Granite, Jamba, Phi-4 and others."""

    def __init__(self, syntax: JsonSyntax, marks: Marks) -> None:
        self._syntax = syntax
        tags = [(marks(begin), marks(end)) for begin, end in syntax.tags]
        self.opens = tuple(begin for begin, _ in tags)
        self.closers = {begin: (end,) for begin, end in tags if end}
        self.leads = "{[" if syntax.bare else ""
        self.separators = syntax.separators
        self.shape = json_shape(syntax)
        self._stops = markers(mark for tag in tags for mark in tag if mark)

    def new_id(self, name: str, number: int) -> str:
        """See ToolParser."""
        return self._syntax.new_id(name, number)

    def read_call(
        self, source: Source, writer: AnswerWriter, opened: str, tools: Tools
    ) -> Steps[None]:
        """See ToolParser."""
        yield from read_json_calls(source, writer, self._syntax, self._stops, bare=not opened)


def json_shape(syntax: JsonSyntax) -> CallShape:
    """How grammars spell such calls."""
    begin, end = syntax.tags[0] if syntax.tags and not syntax.bare else ("", "")
    inner = f'{{{{"{syntax.names[0]}": {{}}, "{syntax.arguments[0]}": '
    gap = "\n" if begin and not syntax.in_list else ""
    if syntax.in_list:
        return CallShape(
            lambda name: inner.format(quoted(name)), "}", (f"{begin}[", f"]{end}"), ", "
        )
    return CallShape(
        lambda name: f"{begin}{gap}{inner.format(quoted(name))}",
        f"}}{gap}{end}",
        separator=f"{syntax.separators[0]} " if syntax.separators else gap,
    )


def read_json_calls(
    source: Source, writer: AnswerWriter, syntax: JsonSyntax, stops: Markers, *, bare: bool
) -> Steps[None]:
    """One object, or a list of them. What is no call stays unclaimed.

    Arguments that stop being JSON go on to one of `stops`.
    """
    first = yield from source.space()
    if first == "{":
        if (yield from _Call(source, writer, syntax, stops, bare).read()):
            yield from _skip_braces(source)
        return
    if first != "[":
        return
    source.at += 1
    while (yield from source.space()) == "{":
        if not (yield from _Call(source, writer, syntax, stops, bare).read()):
            return
        following = yield from source.space()
        if following not in (",", "]"):
            return
        source.at += 1
        source.claim()
        if following == "]":
            return


def _skip_braces(source: Source) -> Steps[None]:
    """Closing braces that models write too many of."""
    while (yield from source.space()) == "}":
        source.at += 1
        source.claim()


class _Call:
    """One object on its way from `{` to `}`."""

    def __init__(
        self,
        source: Source,
        writer: AnswerWriter,
        syntax: JsonSyntax,
        stops: Markers,
        bare: bool,
    ) -> None:
        self._source = source
        self._writer = writer
        self._syntax = syntax
        self._stops = stops
        self._bare = bare
        self._name: str | None = None
        self._early: list[str] | None = None  # arguments that came before the name
        self._started = False
        self._depth = 0

    def read(self) -> Steps[bool]:
        """Whether the object was a call and is complete."""
        source = self._source
        source.at += 1
        self._depth = 1
        following = yield from source.space()
        while following != "}":
            if not (yield from self._pair()):
                return False
            following = yield from source.space()
            while following == "}" and self._depth > 1:
                self._depth -= 1
                source.at += 1
                following = yield from source.space()
            if following == ",":
                source.at += 1
                following = yield from source.space()
            elif following != "}":
                return False
        if self._name is None or (self._bare and not (self._started or self._early)):
            return False
        source.at += 1
        if not self._started:
            self._start()
            self._writer.arguments("".join(self._early or ("{}",)))
            self._writer.end_call()
        source.claim()
        return True

    def _pair(self) -> Steps[bool]:
        source, syntax = self._source, self._syntax
        key = yield from read_string(source)
        if key is None or (yield from source.space()) != ":":
            return False
        source.at += 1
        following = yield from source.space()
        if key in syntax.names and self._name is None and following == '"':
            self._name = yield from read_string(source)
            return bool(self._name)
        if key in syntax.arguments and not self._started and self._early is None:
            return (yield from self._arguments(following))
        if key in _WRAPPERS and following == "{" and self._name is None and self._depth == 1:
            self._depth += 1
            source.at += 1
            yield from source.space()
            return (yield from self._pair())
        if self._bare and key not in syntax.others and not self._started:
            return False
        return (yield from skip_value(source))

    def _arguments(self, following: str) -> Steps[bool]:
        source = self._source
        if following not in ('"', "{"):
            # A tool without parameters may be called with null.
            self._early = ["{}"]
            return (yield from read_word(source)) in ("null", "None")
        write: Callable[[str], None]
        if self._name is None:
            self._early = []
            write = self._early.append
        else:
            self._start()
            source.claim()
            write = self._claimed
        if following == "{":
            whole = yield from copy_container(source, write)
        else:
            source.at += 1
            whole = yield from copy_string(source, write)
        if self._started:
            source.claim()
            if not whole:
                yield from copy_rest(source, self._writer, self._stops)
            self._writer.end_call()
        return whole

    def _start(self) -> None:
        self._started = True
        self._writer.start_call(self._name or "")

    def _claimed(self, text: str) -> None:
        self._writer.arguments(text)
        self._source.claim()


def copy_rest(source: Source, writer: AnswerWriter, stops: Markers) -> Steps[None]:
    """Arguments that are not what they should be, as they are written, up to one of `stops`."""
    stop = yield from source.copy_until(stops, writer.arguments)
    source.at -= len(stop or "")
