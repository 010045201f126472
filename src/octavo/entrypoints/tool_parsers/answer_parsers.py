"""AnswerParsers: a server's tool call and reasoning parsers, chosen once, opened per request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.entrypoints.reasoning.budget import thinking_marks
from octavo.entrypoints.reasoning.choose import infer_reasoning_parser
from octavo.entrypoints.reasoning.interface import REASONING_PARSERS, ReasoningParser
from octavo.entrypoints.tool_parsers.answer_parser import AnswerParser
from octavo.entrypoints.tool_parsers.choose import infer_tool_parser
from octavo.entrypoints.tool_parsers.families import ANY_JSON
from octavo.entrypoints.tool_parsers.harmony import HarmonyCalls
from octavo.entrypoints.tool_parsers.interface import TOOL_PARSERS, ToolParser, load_plugin
from octavo.entrypoints.tool_parsers.marks import Marks, TokenText
from octavo.entrypoints.tool_parsers.tools import NO_TOOLS, Tools
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.errors import ConfigError
from octavo.types.sampling_extras import ThinkingMarks
from octavo.types.sampling_params import ReasoningMarks, StopScope
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

NO_PARSER = "none"  # the name that turns a parser off


@dataclass(frozen=True, slots=True)
class Reading:
    """How the answers to one request are to be read.

    With `calls`, tool calls are looked for, and those beyond `most_calls` dropped. `prompt` is the
    prompt's text, `prompt_ids` its tokens (the last ones do), `continued` the text of the message
    that the answer goes on with, if it does. `skip_special_tokens` is what the client wants to
    see. Two fields are for answers under a grammar. `spelled`: it is a structural tag's, which
    ordinary tokens may satisfy, so marks count as text too. `forced_json`: it is that of
    forced_calls_schema, so the calls are a bare JSON list.
    """

    prompt: str
    prompt_ids: Sequence[int]
    calls: bool = False
    tools: Tools = NO_TOOLS
    most_calls: int | None = None
    spelled: bool = False
    forced_json: bool = False
    continued: str | None = None
    skip_special_tokens: bool = True


class AnswerParsers:
    """The parsers of a server. `tools` and `reasoning` are None where there is none.

    Thread-safe: nothing of any answer is kept here.
    """

    def __init__(
        self, tokenizer: Tokenizer | None, tool_parser: str | None, reasoning_parser: str | None
    ) -> None:
        self.tool_parser_name = tool_parser
        self.reasoning_parser_name = reasoning_parser
        self._tokenizer = tokenizer
        self._by_token = _Grammars(Marks(tokenizer), tool_parser, reasoning_parser)
        self._by_text = _Grammars(Marks(None), tool_parser, reasoning_parser)
        self.tools = self._by_token.tools
        self.reasoning = self._by_token.reasoning

    @property
    def needs_special_tokens(self) -> bool:
        """Whether the engine must leave special tokens in the text (skip_special_tokens=False)."""
        return bool(self._by_token.marks.characters)

    def reads(self, calls: bool) -> bool:
        """Whether there is anything to look for in an answer, with `calls` also tool calls."""
        return self.reasoning is not None or (calls and self.tools is not None)

    @property
    def mark_texts(self) -> list[str]:
        """The texts that stand around reasoning and calls, as models write them."""
        texts: list[str] = []
        if self.reasoning is not None:
            texts += [*self.reasoning.syntax.starts, *self.reasoning.syntax.ends]
        if self.tools is not None:
            closers = [text for texts in self.tools.closers.values() for text in texts]
            texts += map(self._by_token.marks.spelled, [*self.tools.opens, *closers])
        return [text for text in texts if text]

    def stop_scope(self, reading: Reading) -> StopScope:
        """Where stop strings do not count: in reasoning and in calls."""
        scope = StopScope(inside=self._inside(reading) is True)
        marks = self._by_token.marks
        if self.reasoning is not None:
            syntax = self.reasoning.syntax
            pairs = list(zip(syntax.starts, syntax.ends, strict=True))
            if self._inside(reading) is not False:
                scope.at_start = pairs
            scope.anywhere = [
                pair for pair in pairs if marks(pair[0]) in self.reasoning.starts_anywhere
            ]
        if reading.calls and self.tools is not None and not reading.forced_json:
            closers = self.tools.closers
            scope.anywhere += [
                (marks.spelled(mark), marks.spelled(closers.get(mark, ("",))[-1]))
                for mark in self.tools.opens
            ]
        return scope

    def reasoning_marks(self, reading: Reading) -> ReasoningMarks | None:
        """What may come before the text that a grammar is for; None if nothing does."""
        if self._by_token.harmony is not None:
            # A message in the final channel is that text, whatever other messages come before; a
            # bare list of calls stands in no channel.
            final = ReasoningMarks([], ["<|channel|>final<|message|>"], True)
            return None if reading.forced_json else final
        inside = self._inside(reading)
        if self.reasoning is None or inside is False:
            return None
        syntax = self.reasoning.syntax
        return ReasoningMarks(list(syntax.starts), list(syntax.ends), inside)

    def thinking_marks(self, reading: Reading | None = None) -> ThinkingMarks | None:
        """The tokens around reasoning in the answer, and in the prompt; None if nobody knows."""
        if self.reasoning is None or self._tokenizer is None:
            return None
        inside = reading is not None and self._inside(reading) is True
        return thinking_marks(self.reasoning.syntax, self._tokenizer, inside=inside)

    def _inside(self, reading: Reading) -> bool | None:
        if self.reasoning is None:
            return False
        return self.reasoning.begins_inside(reading.prompt, reading.continued)

    def open(self, reading: Reading) -> AnswerParser:
        """A parser for one answer."""
        by_text = reading.spelled or reading.forced_json
        grammars = self._by_text if by_text else self._by_token
        token_text = None
        if self._tokenizer is not None and self.needs_special_tokens and not by_text:
            token_text = TokenText(
                self._tokenizer, grammars.marks, reading.prompt_ids, reading.skip_special_tokens
            )
        tool_parser = grammars.any_json if reading.forced_json else grammars.tools
        return AnswerParser(
            tool_parser=tool_parser if reading.calls else None,
            reasoning=grammars.reasoning,
            tools=reading.tools,
            inside=self._inside(reading),
            marks=grammars.marks,
            token_text=token_text,
            most_calls=reading.most_calls,
            harmony=None if reading.forced_json else grammars.harmony,
        )


class _Grammars:
    """The parsers over one set of marks."""

    def __init__(self, marks: Marks, tool_parser: str | None, reasoning_parser: str | None) -> None:
        self.marks = marks
        self.any_json = ANY_JSON(marks)
        self.tools: ToolParser | None = None
        self.reasoning: ReasoningParser | None = None
        if tool_parser is not None:
            self.tools = TOOL_PARSERS.get(tool_parser)(marks)
        if reasoning_parser is not None:
            self.reasoning = ReasoningParser(REASONING_PARSERS.get(reasoning_parser), marks)
        # gpt-oss's answers have one grammar, whichever of the two parsers asks for it.
        self.harmony = self.tools if isinstance(self.tools, HarmonyCalls) else None
        if self.harmony is None and self.reasoning is not None and self.reasoning.harmony:
            self.harmony = HarmonyCalls(marks)


def check_parser_names(
    tool_parser: str | None, reasoning_parser: str | None, plugins: Sequence[str | None] = ()
) -> None:
    """Raises ConfigError for a name that nobody registered, also not one of the plug-in files."""
    for plugin in plugins:
        if plugin:
            load_plugin(plugin)
    _check_name("tool_call_parser", tool_parser, TOOL_PARSERS.names())
    _check_name("reasoning_parser", reasoning_parser, REASONING_PARSERS.names())


def choose_parsers(
    tokenizer: Tokenizer | None,
    template: str,
    architecture: str,
    *,
    tool_parser: str | None = None,
    reasoning_parser: str | None = None,
    plugins: Sequence[str | None] = (),
) -> AnswerParsers:
    """The parsers that were named, else those the model's template tells; logs the choice.

    "none" does without. `plugins` are files that register further ones. Raises ConfigError for a
    name that is not registered.
    """
    check_parser_names(tool_parser, reasoning_parser, plugins)
    chosen = []
    for option, name, infer in (
        ("tool_call_parser", tool_parser, infer_tool_parser),
        ("reasoning_parser", reasoning_parser, infer_reasoning_parser),
    ):
        found = name or infer(template, architecture)
        if tokenizer is None or found == NO_PARSER:
            found = None
        logger.info("%s: %s (%s)", option, found, "as asked" if name else "told by the model")
        chosen.append(found)
    if chosen[0] is not None and template and "tools" not in template:
        logger.warning(
            "the chat template shows no tools to the model; tool calls need one that does "
            "(--chat-template)"
        )
    return AnswerParsers(tokenizer, *chosen)


def _check_name(option: str, name: str | None, known: Sequence[str]) -> None:
    if name and name != NO_PARSER and name not in known:
        raise ConfigError(
            f"{option}={name!r} is unknown; there are: {', '.join((*known, NO_PARSER))}"
        )
