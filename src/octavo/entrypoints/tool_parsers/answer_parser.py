"""AnswerParser: one answer as it grows, token ids and text in, events out."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.entrypoints.reasoning.interface import ReasoningParser
from octavo.entrypoints.tool_parsers.answer_grammar import AnswerGrammar
from octavo.entrypoints.tool_parsers.answer_writer import AnswerWriter
from octavo.entrypoints.tool_parsers.events import Event
from octavo.entrypoints.tool_parsers.harmony import HarmonyCalls
from octavo.entrypoints.tool_parsers.interface import ToolParser
from octavo.entrypoints.tool_parsers.marks import Marks, TokenText
from octavo.entrypoints.tool_parsers.source import Source, Steps
from octavo.entrypoints.tool_parsers.tools import Tools
from octavo.utils.logging import get_logger

logger = get_logger(__name__)


class AnswerParser:
    """Reads one answer; a request with n > 1 has one for each.

    However the answer is cut into pieces, the same texts and calls come out. Nothing the model
    wrote is lost: what looks like a call and is none comes out as text, and a call that goes wrong
    after its arguments have begun ends with what was written of them. No piece raises.
    """

    def __init__(
        self,
        *,
        tool_parser: ToolParser | None,
        reasoning: ReasoningParser | None,
        tools: Tools,
        inside: bool | None,
        marks: Marks,
        token_text: TokenText | None,
        most_calls: int | None = None,
        harmony: HarmonyCalls | None = None,
    ) -> None:
        self._token_text = token_text
        self._source = Source()
        self._writer = AnswerWriter(
            new_id=None if tool_parser is None else tool_parser.new_id,
            spellings=marks.spellings,
            most_calls=most_calls,
            hold_blanks=tool_parser is not None and harmony is None,
        )
        self._steps: Steps[None]
        if harmony is not None:
            self._steps = harmony.read_answer(
                self._source, self._writer, with_calls=tool_parser is not None
            )
        else:
            grammar = AnswerGrammar(
                self._source, self._writer, tool_parser, reasoning, tools, inside
            )
            self._steps = grammar.read()
        self._ended = False
        self._broken = False

    @property
    def num_calls(self) -> int:
        """Calls that have begun so far, without those that were dropped."""
        return self._writer.num_calls

    def feed(self, text: str, token_ids: Sequence[int] = ()) -> list[Event]:
        """Take the news of the engine: the text that is new, and the tokens that are."""
        if self._token_text is not None:
            text = self._token_text.feed(text, token_ids)
        if not text or self._ended:
            return []
        self._source.push(text)
        self._advance()
        return self._writer.take()

    def finish(self, truncated: bool = False) -> list[Event]:
        """The rest, when nothing follows; `truncated`: the model was not done."""
        if self._ended:
            return []
        self._ended = True
        self._source.end(truncated)
        self._advance()
        self._writer.finish()
        return self._writer.take()

    def finish_reason(self, reason: str | None) -> str | None:
        """The engine's finish reason in the words of the API: "tool_calls" after any call."""
        return "tool_calls" if reason == "stop" and self.num_calls else reason

    def _advance(self) -> None:
        if not self._broken:
            try:
                next(self._steps, None)
                return
            # A fault of a grammar (or of a plug-in) must not cost the client the answer.
            except Exception:
                logger.exception("a parser failed; the rest of the answer is passed on as text")
                self._broken = True
        source = self._source
        source.at = len(source.text)
        self._writer.content(source.unclaimed())
