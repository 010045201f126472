"""CompletionSearch: a short way to end a text under a grammar."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo.structured_output.interface import Grammar, MaskArray, Vocabulary, mask_width

Fill = Callable[[Sequence[tuple[Grammar, int]], MaskArray], None]
_Ids = npt.NDArray[np.int64]

MAX_MASKS = 96  # of one try
MAX_SECONDS = 0.03  # of a search, of the thread's own time
# Where hardly a letter may come a JSON text is between its strings: first what ends things, then
# what stands between values, then values. Elsewhere it is within one, which a quote ends.
_CLOSING = b"]}"
_BETWEEN = (b',"', b",", b'":', b":")
_WORDS = (b"null", b'""', b"[]", b"{}", b"true", b"false")
_MARKS = b".;)>!/ -_"
_FEW_LETTERS = 4  # null, true and false begin with three


@dataclass(frozen=True, slots=True)
class _Order:
    """Tokens in the order in which they are tried, within text and elsewhere."""

    within: _Ids
    elsewhere: _Ids


class CompletionSearch:
    """Follows the most promising token at every step; it finds a way, rarely the shortest.

    A grammar's library tells which tokens may come and not how far they are from an end, so the
    order in which tokens are tried is what one would type to close a JSON text. Texts that end in
    something particular, like a pattern's last letters, may not be found.
    """

    def __init__(self, vocabulary: Vocabulary, fill: Fill) -> None:
        """`fill`: see GrammarBackend. The vocabulary is read when the first way is looked for."""
        self._vocabulary = vocabulary
        self._fill = fill
        self._width = mask_width(vocabulary.size)
        self._orders: tuple[_Order, ...] = ()
        self._letters = np.empty(0, np.int64)  # tokens
        self._lock = threading.Lock()

    def find(
        self, grammar: Grammar, most: int, barred: Collection[int] = frozenset()
    ) -> list[int] | None:
        """At most `most` tokens that complete the text, none of them barred; None if none found."""
        with self._lock:
            if not self._orders:
                self._orders = self._rank()
        until = time.thread_time() + MAX_SECONDS
        for order in self._orders:
            found = self._walk(grammar, most, barred, order, until)
            if found is not None:
                return found
        return None

    def _walk(
        self, grammar: Grammar, most: int, barred: Collection[int], order: _Order, until: float
    ) -> list[int] | None:
        grammar, found = grammar.copy(), list[int]()
        for _ in range(MAX_MASKS):
            if grammar.may_end:
                return found
            next_ids = grammar.forced() or self._choose(grammar, barred, order)
            found += next_ids
            if (
                not next_ids
                or len(found) > most
                or not set(next_ids).isdisjoint(barred)
                or time.thread_time() > until
            ):
                return None
            grammar.accept(next_ids)
        return None

    def _choose(self, grammar: Grammar, barred: Collection[int], order: _Order) -> list[int]:
        masks = np.zeros((1, self._width), np.int32)
        self._fill([(grammar, 0)], masks)
        if grammar.error is not None:
            return []
        bits = np.unpackbits(masks.view(np.uint8), bitorder="little")[: self._vocabulary.size]
        bits[list(self._vocabulary.ends)] = 0
        bits[list(barred)] = 0
        few = bits[self._letters].sum() < _FEW_LETTERS
        ids = order.elsewhere if few else order.within
        preferred = ids[bits[ids].nonzero()[0][:1]]
        return [int(token) for token in (preferred if preferred.size else bits.nonzero()[0][:1])]

    def _rank(self) -> tuple[_Order, ...]:
        tokenizer = self._vocabulary.tokenizer
        special = set(tokenizer.all_special_ids)
        by_text: dict[bytes, int] = {}
        closing: list[bytes] = []
        quotes: list[bytes] = []
        for token_id in range(tokenizer.vocab_size):
            text = tokenizer.token_bytes(token_id)
            if token_id in special or not text:
                continue
            by_text.setdefault(text, token_id)
            if set(text) <= set(_CLOSING):
                closing.append(text)
            elif text.startswith(b'"') and set(text[1:]) <= set(_CLOSING):
                quotes.append(text)
        closing.sort(key=len, reverse=True)
        quotes.sort(key=len, reverse=True)
        digits = [bytes([byte]) for byte in b"0123456789"]
        letters = [bytes([byte]) for byte in b"abcdefghijklmnopqrstuvwxyz"]
        letters += [letter.upper() for letter in letters]
        rest = [bytes([byte]) for byte in range(0x21, 0x7F)]
        marks = [bytes([byte]) for byte in _MARKS]

        def ids(*texts: bytes) -> _Ids:
            known = [by_text[text] for text in dict.fromkeys(texts) if text in by_text]
            return np.array(known, np.int64)

        self._letters = ids(*letters)
        structure = (*closing, *_BETWEEN, *_WORDS)
        return tuple(
            _Order(ids(*quotes, *last, *structure), ids(*structure, *quotes, *last))
            for last in (
                (*marks, *digits, *rest),
                (*marks, *letters[::-1], *digits[::-1], *rest),
            )
        )
