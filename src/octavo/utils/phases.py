"""Phases: where the seconds of a start-up go."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

OTHER = "other"


class Phases:
    """Named spans of wall time; `with phases("weights"): ...`. Spans must not overlap."""

    def __init__(self, began: float | None = None) -> None:
        """`began`: the moment (time.monotonic) from which on every second is accounted for."""
        self._began = time.monotonic() if began is None else began
        self._seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the body's time under `name`."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.add({name: time.monotonic() - began})

    def add(self, seconds: Mapping[str, float]) -> None:
        """Count time that was measured elsewhere."""
        for name, value in seconds.items():
            self._seconds[name] = self._seconds.get(name, 0.0) + max(value, 0.0)

    def seconds(self) -> dict[str, float]:
        """Seconds by name, in the order the phases began."""
        return dict(self._seconds)

    def complete(self) -> dict[str, float]:
        """Seconds by name up to now, with what no phase claims as "other": their sum is the wall
        time."""
        named = {name: value for name, value in self._seconds.items() if name != OTHER}
        rest = time.monotonic() - self._began - sum(named.values())
        return named | {OTHER: max(rest, 0.0)}


def phase_table(seconds: Mapping[str, float]) -> str:
    """One line per phase, and the sum."""
    rows = [*seconds.items(), ("sum", sum(seconds.values()))]
    return "\n".join(f"  {name:<16}{value:>8.2f} s" for name, value in rows)


def process_start() -> float:
    """When this process was made, as time.monotonic counts; to a hundredth of a second.

    Where /proc doesn't tell: now.
    """
    now = time.monotonic()
    try:
        # Field 22 of proc(5)'s stat; the name in field 2 may hold spaces and parentheses.
        stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        ticks = int(stat[19])
        alive = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return now
    return now - max(alive, 0.0)
