"""Phases: where the seconds of a start-up go."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Phases:
    """Named spans of wall time; `with phases("load weights"): ...`. Spans must not overlap."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the body's time under `name`."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.monotonic() - began

    def seconds(self) -> dict[str, float]:
        """Seconds by name, in the order the phases began."""
        return dict(self._seconds)

    def summary(self) -> str:
        """One line: each phase and the sum."""
        parts = [f"{name} {seconds:.2f} s" for name, seconds in self._seconds.items()]
        return f"{', '.join(parts)}; {sum(self._seconds.values()):.2f} s in all"
