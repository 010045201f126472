"""Grammars by xgrammar, an optional package: a pushdown automaton over the vocabulary."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from octavo.structured_output.interface import (
    Grammar,
    GrammarBackend,
    GrammarError,
    MaskArray,
    Vocabulary,
)
from octavo.structured_output.json_schema import Dialect, read_schema
from octavo.types.errors import ConfigError
from octavo.types.sampling_params import StructuredOutputsParams

_NUM_THREADS = 4
_SERIAL = 8  # grammars that one thread fills faster than several
_CACHE_BYTES = 256 << 20
_MOST_BLANKS = 8  # in a row
# What it reads over in JSON schemas, or takes for something weaker.
_DIALECT = Dialect(
    refused=frozenset(
        {
            "allOf",
            "maxLength",  # with it, control characters stand in strings as they are
            "maxProperties",
            "minLength",
            "minProperties",
            "multipleOf",
            "oneOf",
            "pattern",
            "patternProperties",
        }
    ),
    formats=frozenset({"email", "uuid"}),  # its dates have a 30 February
    single=True,
)


class XGrammar(Grammar):
    """A GrammarMatcher."""

    def __init__(self, matcher: Any) -> None:
        self.matcher = matcher

    def copy(self) -> Grammar:
        """See Grammar."""
        other = XGrammar(self.matcher.fork())
        other.shortest = self.shortest
        return other

    def accept(self, token_ids: Sequence[int]) -> None:
        """See Grammar."""
        for token_id in token_ids:
            if not self.matcher.accept_token(token_id):
                raise GrammarError(f"the grammar refuses the token {token_id}")

    @property
    def may_end(self) -> bool:
        """See Grammar."""
        return bool(self.matcher.is_completed())

    def completes(self, token_ids: Sequence[int]) -> bool:
        """See Grammar."""
        after = self.matcher.fork()
        return all(map(after.accept_token, token_ids)) and bool(after.is_completed())

    @property
    def error(self) -> str | None:
        """See Grammar; it sets itself no limits."""
        return None

    def forced(self) -> list[int]:
        """See Grammar; it forces texts, which several tokens may begin, and no tokens."""
        return []


class XGrammarBackend(GrammarBackend):
    """Takes the kinds and keywords that it enforces; guidance takes more."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        library = _library()
        tokenizer = vocabulary.tokenizer
        texts = [tokenizer.token_bytes(token_id) for token_id in range(vocabulary.size)]
        for token_id in tokenizer.all_special_ids:
            texts[token_id] = b""  # part of no text
        info = library.TokenizerInfo(
            texts, vocab_size=vocabulary.size, stop_token_ids=list(vocabulary.ends)
        )
        self._library = library
        self._compiler = library.GrammarCompiler(
            info, max_threads=_NUM_THREADS, cache_limit_bytes=_CACHE_BYTES
        )
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="octavo-masks")

    @staticmethod
    def check(spec: StructuredOutputsParams) -> None:
        """See GrammarBackend."""
        kinds = _library().Grammar
        _told(spec, lambda: _build(spec, kinds))

    def compile(self, spec: StructuredOutputsParams) -> Grammar:
        """See GrammarBackend."""
        grammar = _told(spec, lambda: _build(spec, self._library.Grammar))
        compiled = _told(spec, lambda: self._compiler.compile_grammar(grammar))
        return XGrammar(self._library.GrammarMatcher(compiled))

    def fill(self, grammars: Sequence[tuple[Grammar, int]], masks: MaskArray) -> None:
        """See GrammarBackend."""

        def fill_one(entry: tuple[Grammar, int]) -> None:
            grammar, row = entry
            if isinstance(grammar, XGrammar):
                grammar.matcher.fill_next_token_bitmask(masks, row)

        if len(grammars) <= _SERIAL:
            for entry in grammars:
                fill_one(entry)
        else:
            list(self._threads.map(fill_one, grammars))


def _build(spec: StructuredOutputsParams, kinds: Any) -> Any:
    """An xgrammar.Grammar."""
    if spec.whitespace_pattern is not None:
        raise GrammarError(
            "whitespace_pattern is not enforced by xgrammar; leave it out", "whitespace_pattern"
        )
    match spec.kind:
        case "json" | "json_object":
            if spec.json is None:
                schema: Any = {"type": "object"}
            else:
                schema = read_schema(spec, _DIALECT)
            if schema is True:
                return kinds.builtin_json_grammar()
            if schema is False:
                raise GrammarError("json: no value fits the schema false", "json")
            # Its strict mode closes objects that do not say they are open, which JSON Schema does
            # not.
            return kinds.from_json_schema(
                schema,
                any_whitespace=not spec.disable_any_whitespace,
                separators=(",", ":") if spec.disable_any_whitespace else None,
                max_whitespace_cnt=None if spec.disable_any_whitespace else _MOST_BLANKS,
                strict_mode=False,
            )
        case "regex":
            return kinds.from_regex(spec.regex)
        case "choice":
            texts = [_quoted(text) for text in spec.choice or ()]
            return kinds.from_ebnf(f"root ::= {' | '.join(texts)}")
        case "grammar":
            return kinds.from_ebnf(spec.grammar)
    raise GrammarError("structural_tag needs the backend guidance", "structural_tag")


def _quoted(text: str) -> str:
    letters = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
    return '"' + "".join(letters.get(letter, letter) for letter in text) + '"'


def _told(spec: StructuredOutputsParams, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except GrammarError:
        raise
    # The binding raises RuntimeError and classes of its own for what is not valid.
    except Exception as error:
        line = str(error).strip().splitlines()
        text = f"{spec.kind}: {line[-1][:500] if line else type(error).__name__}"
        raise GrammarError(text, spec.kind) from None


def _library() -> Any:
    try:
        return importlib.import_module("xgrammar")
    except ImportError as error:
        raise ConfigError(
            f"structured_outputs_backend=xgrammar: the package can't be imported ({error}); "
            "install octavo[xgrammar] or leave the option out"
        ) from None
