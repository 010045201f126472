"""HostSpans: when the host did what, from methods that are timed while a trace is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

# Called with a method's positional arguments and its result; gives what a span says about them.
Describe = Callable[[Sequence[Any], Any], dict[str, Any]]


class Span(NamedTuple):
    """A stretch of time, in nanoseconds since 1970: the clock that device traces use too."""

    name: str
    begin: int
    end: int
    args: dict[str, Any]


def _nothing(args: Sequence[Any], result: Any) -> dict[str, Any]:
    return {}


class HostSpans:
    """Records a span for each call of the methods it watches.

    A method is watched by an attribute of the instance that hides the class's own: until the
    first `watch`, and after `stop`, a call costs what it always did. For one thread.
    """

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._watched: list[tuple[Any, str]] = []

    def watch(self, target: Any, method: str, name: str, describe: Describe = _nothing) -> None:
        """Record the calls of `target.method` as `name`. One that raises leaves no span."""
        own = getattr(target, method)
        record = self._spans.append

        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = time.time_ns()
            result = own(*args, **kwargs)
            end = time.time_ns()
            record(Span(name, begin, end, describe(args, result)))
            return result

        setattr(target, method, timed)
        self._watched.append((target, method))

    def stop(self) -> list[Span]:
        """Give the methods back; returns the spans in the order of their ends."""
        while self._watched:
            delattr(*self._watched.pop())
        spans, self._spans = self._spans, []
        return spans
