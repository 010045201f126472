"""DryBreakers: the tokens at which DRY's repetitions end, from the texts that a request names."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterable
from itertools import accumulate

from octavo.engine.prompts import check_text
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.sampling_params import DRY_BREAKERS

_MAX_KNOWN = 256  # texts whose tokens are remembered


class DryBreakers:
    """A token is a breaker if its text holds one of the texts, or if it is the last token of one
    that takes several: so ".\\n\\n" ends a repetition where "\\n" does.
    """

    def __init__(self, tokenizer: Tokenizer | None, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._tokens_of = functools.lru_cache(_MAX_KNOWN)(self._find)

    def token_ids(self, texts: Iterable[str] | None) -> list[int]:
        """The breakers of a request, in order; None stands for the usual ones.

        Without a tokenizer there are none. Raises RequestError for what is no text.
        """
        if self._tokenizer is None:
            return []
        found: set[int] = set()
        for text in DRY_BREAKERS if texts is None else texts:
            found |= self._tokens_of(text)
        return sorted(found)

    def _find(self, text: str) -> frozenset[int]:
        """The breakers of one text: a search through all tokens, one after the other."""
        assert self._tokenizer is not None
        joined, starts = self._vocabulary
        wanted = check_text(text, "dry_sequence_breakers").encode()
        found = set(self._tokenizer.encode(text, False)[-1:])
        at = joined.find(wanted)
        while at >= 0:
            token = bisect.bisect_right(starts, at) - 1
            end = starts[token + 1] if token + 1 < len(starts) else len(joined)
            if at + len(wanted) <= end:
                found.add(token)
                at = joined.find(wanted, end)
            else:
                at = joined.find(wanted, at + 1)
        return frozenset(token for token in found if token < self._vocab_size)

    @functools.cached_property
    def _vocabulary(self) -> tuple[bytes, list[int]]:
        """The bytes of all tokens, one after the other, and where each begins."""
        assert self._tokenizer is not None
        pieces = [
            self._tokenizer.token_bytes(token) for token in range(self._tokenizer.max_token_id + 1)
        ]
        return b"".join(pieces), [0, *accumulate(map(len, pieces[:-1]))]
