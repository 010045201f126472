"""StopStrings: find the first of many stop strings in text that arrives in pieces."""

from __future__ import annotations

import functools
import re
from collections import deque


class StopStrings:
    """An Aho-Corasick automaton over the stop strings (Aho and Corasick, CACM 18(6), 1975).

    A state is the longest end of the text so far that begins some stop string; state 0 is none.
    Which match wins does not depend on how the text is cut: the one that ends first, and of
    those that end together the longest.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._stop: list[str | None] = [None]  # longest stop string that ends in a state
        self.depth = [0]  # characters of a stop string that a state stands for
        for stop in stops:
            self._insert(stop)
        self._fallback = [0] * len(self._next)
        self._link()
        self._first = re.compile("[" + "".join(map(re.escape, self._next[0])) + "]")

    def scan(self, state: int, text: str, start: int = 0) -> tuple[int, int, str | None]:
        """Read text[start:] from a state, up to the end of the first match.

        Returns (state, position after what was read, the stop string that ends there or None).
        """
        successors, fallback, stops = self._next, self._fallback, self._stop
        position = start
        while position < len(text):
            if not state:
                begin = self._first.search(text, position)
                if begin is None:
                    break
                position = begin.start()
            character = text[position]
            position += 1
            following = successors[state].get(character)
            while following is None and state:
                state = fallback[state]
                following = successors[state].get(character)
            state = following or 0
            if stops[state] is not None:
                return state, position, stops[state]
        return state, len(text), None

    def _insert(self, stop: str) -> None:
        state = 0
        for depth, character in enumerate(stop, 1):
            following = self._next[state].get(character)
            if following is None:
                following = len(self._next)
                self._next[state][character] = following
                self._next.append({})
                self._stop.append(None)
                self.depth.append(depth)
            state = following
        self._stop[state] = stop

    def _link(self) -> None:
        """Breadth first: each state's fallback is the next shorter end that begins a stop."""
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            for character, following in self._next[state].items():
                shorter = self._fallback[state]
                while shorter and character not in self._next[shorter]:
                    shorter = self._fallback[shorter]
                self._fallback[following] = self._next[shorter].get(character, 0)
                queue.append(following)
            if self._stop[state] is None:
                self._stop[state] = self._stop[self._fallback[state]]


@functools.lru_cache(maxsize=8)
def compile_stops(stops: tuple[str, ...]) -> StopStrings:
    """The automaton of a set of stop strings; requests that share them share it."""
    return StopStrings(stops)
