"""LoopDetector: whether a sequence of tokens has begun to go round in circles."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from octavo.types.sampling_extras import RepetitionDetectionParams


class LoopDetector:
    """Tells when tokens end with one pattern `min_count` times in a row.

    A pattern of s tokens stands there c times if the last (c - 1) * s tokens each equal the one s
    places before. So for every size one number is kept, the length of the latest run of such
    equals, and a token costs one comparison per size however long the patterns are.
    """

    def __init__(self, params: RepetitionDetectionParams, tokens: Iterable[int] = ()) -> None:
        """`tokens` have been there before."""
        self._sizes = np.arange(max(params.min_pattern_size, 1), params.max_pattern_size + 1)
        self._wanted = self._sizes * (params.min_count - 1)
        self._runs = np.zeros_like(self._sizes)
        # A ring of the latest tokens; -1 equals none.
        self._latest = np.full(params.max_pattern_size, -1, np.int64)
        self._count = 0
        for token in tokens:
            self.add(token)

    def add(self, token: int) -> bool:
        """Take the next token; whether the tokens end with a loop now."""
        before = self._latest[(self._count - self._sizes) % len(self._latest)]
        self._runs = np.where(before == token, self._runs + 1, 0)
        self._latest[self._count % len(self._latest)] = token
        self._count += 1
        return bool((self._runs >= self._wanted).any())
