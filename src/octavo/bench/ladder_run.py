"""Climb: measure rungs on one engine or several in turn, until each has its repetitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

from octavo.bench.clocks import ClockSampler
from octavo.bench.rungs import Rung

Figures = dict[str, float]
# Measures a rung once; the number is another one for each repetition, the same for all sides.
Measure = Callable[[Rung, int], Figures]
# Gets a side (an engine, by its place) ready: within the context it can be measured.
Opener = Callable[[int], AbstractContextManager[Measure]]

_MIN_REPETITIONS = 2  # for a spread, however long they take


@dataclass
class Measured:
    """What one side reached on one rung."""

    values: dict[str, list[float]] = field(default_factory=dict)  # per figure, per repetition
    clocks: dict[str, int] = field(default_factory=dict)

    def add(self, figures: Mapping[str, float]) -> None:
        """Take the figures of a repetition."""
        for name, value in figures.items():
            self.values.setdefault(name, []).append(value)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Rungs that are measured on the same open sides."""

    rungs: Sequence[Rung]
    sides: Sequence[int]
    opener: Opener
    num_warmups: int


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How often, and in which order."""

    repetitions: int
    rung_seconds: float  # after so many, two repetitions are enough
    alternate: bool  # all sides are open at once and take turns; else one after the other


class Climb:
    """Runs stages and keeps what came of them: `results[side][rung word]`."""

    def __init__(self, num_sides: int, pace: Pace, on_result: Callable[[Rung, int], None]) -> None:
        """`on_result` is called when a side is done with a rung."""
        self._pace = pace
        self._on_result = on_result
        self._number = 0
        self.results: list[dict[str, Measured]] = [{} for _ in range(num_sides)]

    def run(self, stage: Stage) -> None:
        """Open the sides, all together or one by one, and measure every rung."""
        groups = [stage.sides] if self._pace.alternate else [[side] for side in stage.sides]
        first = self._number
        for sides in groups:
            self._number = first  # every side gets the same prompts
            with ExitStack() as stack:
                open_sides = {side: stack.enter_context(stage.opener(side)) for side in sides}
                for rung in stage.rungs:
                    self._warm_up(rung, open_sides, stage.num_warmups)
                    self._repeat(rung, open_sides)

    def _warm_up(self, rung: Rung, sides: Mapping[int, Measure], times: int) -> None:
        for _ in range(times):
            self._number += 1
            for measure in sides.values():
                measure(rung, self._number)

    def _repeat(self, rung: Rung, sides: Mapping[int, Measure]) -> None:
        """Let the sides take turns, so that a machine that changes touches all alike."""
        began = time.monotonic()
        measured = {side: Measured() for side in sides}
        with ClockSampler() as clocks:
            for repetition in range(self._pace.repetitions):
                late = time.monotonic() - began > self._pace.rung_seconds
                if late and repetition >= _MIN_REPETITIONS:
                    break
                self._number += 1
                for side, measure in sides.items():
                    measured[side].add(measure(rung, self._number))
        for side in sides:
            measured[side].clocks = clocks.summary()
            self.results[side][rung.word] = measured[side]
            self._on_result(rung, side)
