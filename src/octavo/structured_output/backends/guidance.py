"""Grammars by llguidance: an Earley parser over a lazily built lexer; no torch."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import llguidance.numpy
from llguidance import LLExecutor, LLMatcher, LLParserLimits, LLTokenizer, regex_to_lark
from llguidance.gbnf_to_lark import any_to_lark

from octavo.structured_output.interface import (
    Grammar,
    GrammarBackend,
    GrammarError,
    MaskArray,
    Vocabulary,
)
from octavo.structured_output.json_schema import checked_schema, read_schema
from octavo.structured_output.structural_tags import TagGrammar
from octavo.types.sampling_params import StructuredOutputsParams

# After a comma or colon of JSON: a blank, or after a comma a line break and the next line's
# indentation. Without a bound a model that likes blanks writes nothing else up to its token limit.
_AFTER_COMMA = r"( |\r?\n {0,24}|\n\t{0,8})?"
_AFTER_COLON = r" ?"
# A mask costs at most about 10 ms of one core; a grammar that needs more ends its own request.
_STEP_FUEL = 100_000
_STEP_ITEMS = 5_000
# Keywords that some of the library's messages do not name.
_WHAT_FAILED = {
    "Anchor ": "$ref",
    "Failed to generate regex for": "minimum or maximum",
    "Resource ": "$ref to what is not in the schema",
    "regex parse error": "pattern",
}
_SHORTEST_SPECIAL = 3  # characters of a special token that can stand in a constant text
_REPEATED_REPEAT = re.compile(r"(?:[*+?}])(?:\*|\{\d)")
_ONE_CHARACTER = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)


class GuidanceGrammar(Grammar):
    """An LLMatcher."""

    def __init__(self, matcher: LLMatcher, end: int) -> None:
        """`end` is a token that ends a text."""
        self.matcher = matcher
        self._end = end

    def copy(self) -> Grammar:
        """See Grammar."""
        other = GuidanceGrammar(self.matcher.deep_copy(), self._end)
        other.shortest = self.shortest
        return other

    def accept(self, token_ids: Sequence[int]) -> None:
        """See Grammar."""
        if not self.matcher.consume_tokens(list(token_ids)):
            raise GrammarError(f"the grammar refuses a token: {self.error}")

    @property
    def may_end(self) -> bool:
        """See Grammar."""
        return bool(self.matcher.is_accepting())

    def completes(self, token_ids: Sequence[int]) -> bool:
        """See Grammar."""
        whole = [*token_ids, self._end]
        return int(self.matcher.validate_tokens(whole)) == len(whole)

    @property
    def error(self) -> str | None:
        """See Grammar."""
        return _first_line(self.matcher.get_error()) if self.matcher.is_error() else None

    def forced(self) -> list[int]:
        """See Grammar."""
        return list(self.matcher.compute_ff_tokens())


class GuidanceBackend(GrammarBackend):
    """Masks are filled by threads that do not hold Python's lock."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        tokenizer = vocabulary.tokenizer
        try:
            self._tokenizer = LLTokenizer(
                tokenizer.backend.to_str(),
                n_vocab=vocabulary.size,
                eos_token=list(vocabulary.ends),
            )
        except ValueError as error:
            raise GrammarError(f"this model's tokenizer can't be constrained: {error}") from None
        self._end = vocabulary.ends[0]
        # Also tokens that the model's tokenizer does not call special, like Qwen's <tool_call>.
        self._special = {
            token.content: token_id
            for token_id, token in tokenizer.backend.get_added_tokens_decoder().items()
            if len(token.content) >= _SHORTEST_SPECIAL
            and self._tokenizer.is_special_token(token_id)
        }
        self._executor = LLExecutor()

    @staticmethod
    def check(spec: StructuredOutputsParams) -> None:
        """See GrammarBackend."""
        text = grammar_text(spec, {})
        wrong, messages = LLMatcher.validate_grammar_with_warnings(text, limits=_limits())
        if wrong:
            raise GrammarError(f"{spec.kind}: {_explain(messages[0])}", spec.kind)

    def compile(self, spec: StructuredOutputsParams) -> Grammar:
        """See GrammarBackend."""
        text = grammar_text(spec, self._special)
        matcher = LLMatcher(self._tokenizer, text, log_level=0, limits=_limits())
        if matcher.is_error():
            raise GrammarError(f"{spec.kind}: {_explain(matcher.get_error())}", spec.kind)
        # Compute the first mask here, in the compiler's thread: it builds the lexer's first states.
        matcher.compute_bitmask()
        if matcher.is_error():
            raise GrammarError(f"{spec.kind}: {_explain(matcher.get_error())}", spec.kind)
        return GuidanceGrammar(matcher, self._end)

    def fill(self, grammars: Sequence[tuple[Grammar, int]], masks: MaskArray) -> None:
        """See GrammarBackend."""
        matchers = [
            (grammar.matcher, row)
            for grammar, row in grammars
            if isinstance(grammar, GuidanceGrammar)
        ]
        llguidance.numpy.fill_next_token_bitmask_par(self._executor, matchers, masks)


def grammar_text(spec: StructuredOutputsParams, special: Mapping[str, int]) -> str:
    """The constraint in llguidance's own form. Raises GrammarError.

    `special` holds the ids of special tokens by their spelling, for structural tags.
    """
    match spec.kind:
        case "json":
            return _json_text(read_schema(spec), spec)
        case "json_object":
            return _json_text({"type": "object"}, spec)
        case "regex":
            _check_regex(spec.regex or "", "regex")
            return str(LLMatcher.grammar_from_regex(spec.regex or ""))
        case "choice":
            choices = [json.dumps(text, ensure_ascii=False) for text in spec.choice or ()]
            return str(LLMatcher.grammar_from_lark(f"start: {' | '.join(choices)}"))
        case "grammar":
            return str(LLMatcher.grammar_from_lark(_lark(spec.grammar or "")))
    closed = spec.disable_additional_properties is True
    tags = TagGrammar(
        schema=lambda schema: (
            f"%json {json.dumps(_with_options(checked_schema(schema, closed), spec))}"
        ),
        regex=_lark_regex,
        grammar=_lark,
        special=special,
    )
    text = spec.structural_tag if isinstance(spec.structural_tag, str) else "{}"
    return json.dumps({"grammars": tags.grammars(text)})


def _json_text(schema: Any, spec: StructuredOutputsParams) -> str:
    whole = json.dumps(_with_options(schema, spec))
    return f'{{"grammars": [{{"json_schema": {whole}}}]}}'


def _lark_schema(schema: Any) -> str:
    return f"%json {json.dumps(schema)}"


def _with_options(schema: Any, spec: StructuredOutputsParams) -> Any:
    if not isinstance(schema, dict):
        schema = {} if schema is True else {"enum": []}
    # llguidance's own whitespace_pattern may match again and again; its separators, as regular
    # expressions, match once.
    options: dict[str, Any] = {"whitespace_flexible": False}
    blanks = spec.whitespace_pattern
    if blanks is not None:
        for name, mark in (("item_separator", ","), ("key_separator", ":")):
            options[name] = f"({blanks})?{mark}({blanks})?"
    elif not spec.disable_any_whitespace:
        options["item_separator"] = f",{_AFTER_COMMA}"
        options["key_separator"] = f":{_AFTER_COLON}"
    return schema | {"x-guidance": options}


def _lark(text: str) -> str:
    try:
        lark: str = any_to_lark(text)
    # The converter raises plain exceptions of several kinds for a text that is not valid.
    except Exception as error:
        raise GrammarError(f"grammar: {error}", "grammar") from None
    return lark


def _lark_regex(pattern: str) -> str:
    _check_regex(pattern, "structural_tag")
    return f"/{regex_to_lark(pattern, '')}/"


def _check_regex(pattern: str, field: str) -> None:
    """What one would take for a slip of the pen, although it has a meaning."""
    plain = _ONE_CHARACTER.sub("x", pattern)
    if _REPEATED_REPEAT.search(plain):
        raise GrammarError(
            f"{field}: {pattern!r:.64} repeats what is repeated already; put it in parentheses",
            field,
        )


def _limits() -> LLParserLimits:
    return LLParserLimits(
        step_lexer_fuel=_STEP_FUEL, step_max_items=_STEP_ITEMS, verbose_errors=False
    )


def _explain(message: str) -> str:
    text = _first_line(message)
    if text.startswith("oneOf constraints are not supported"):
        return "oneOf is enforced only where no value fits two of its schemas; use anyOf"
    for start, name in _WHAT_FAILED.items():
        if text.startswith(start):
            return f"{name}: {text}"
    return text


def _first_line(message: str) -> str:
    lines = [line.strip() for line in message.split("<state>")[0].splitlines()]
    return " ".join(line for line in lines if line and line != "<non-verbose/>")[:500]
