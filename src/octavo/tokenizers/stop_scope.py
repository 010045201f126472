"""StopScopeReader: which parts of a text, as it arrives, stop strings may end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from octavo.tokenizers.stop_strings import StopStrings, compile_stops
from octavo.types.sampling_params import StopScope


class StopScopeReader:
    """Splits text at the marks of a StopScope.

    The beginning of a mark is held until it is one or not, so that no stop string is found in it.
    """

    def __init__(self, scope: StopScope) -> None:
        self._at_start = scope.at_start
        self._anywhere = dict(scope.anywhere)
        self._opens: StopStrings | None = None
        if scope.anywhere:
            self._opens = compile_stops(tuple(self._anywhere))
        self._closes: StopStrings | None = None
        self._state = 0  # of the automaton that looks for the end of a quiet part
        self._held = ""
        self._quiet = False
        self._deciding = bool(scope.at_start) and not scope.inside
        if scope.inside:
            self._enter(end for _, end in scope.at_start)

    def split(self, text: str) -> Iterator[tuple[str, bool, int]]:
        """(part of the text, whether stop strings count in it, where in `text` it begins).

        A part that had been held begins before 0.
        """
        at = -len(self._held)
        text, self._held = self._held + text, ""
        if self._deciding and not self._decide(text):
            self._held = text
            return
        start = 0
        while start < len(text):
            end = self._end_of_quiet(text, start) if self._quiet else start
            if end > start:
                yield text[start:end], False, at + start
                start = end
                continue
            end, mark = self._end_of_loud(text, start)
            if end > start:
                yield text[start:end], True, at + start
            if mark:
                yield mark, False, at + end
            start = end + len(mark)
            if not mark:
                self._held = text[end:]
                return

    def flush(self) -> str:
        """What is held, when nothing follows; stop strings count in it."""
        held, self._held = self._held, ""
        return held

    def _decide(self, text: str) -> bool:
        """Whether it is known by now if the text begins with a quiet part."""
        bare = text.lstrip()
        for begin, end in self._at_start:
            if bare.startswith(begin):
                self._enter([end])
                self._deciding = False
                return True
        self._deciding = any(begin.startswith(bare) for begin, _ in self._at_start)
        return not self._deciding

    def _enter(self, ends: Iterable[str]) -> None:
        known = tuple(end for end in ends if end)
        self._closes = compile_stops(known) if known else None
        self._state = 0
        self._quiet = True

    def _end_of_quiet(self, text: str, start: int) -> int:
        if self._closes is None:
            return len(text)
        self._state, end, mark = self._closes.scan(self._state, text, start)
        self._quiet = mark is None
        return end

    def _end_of_loud(self, text: str, start: int) -> tuple[int, str]:
        """Where a loud part ends, and the mark that ends it; "" where the text does."""
        if self._opens is None:
            return len(text), ""
        state, end, mark = self._opens.scan(0, text, start)
        if mark is None:
            return len(text) - self._opens.depth[state], ""
        self._enter([self._anywhere[mark]])
        return end - len(mark), mark
