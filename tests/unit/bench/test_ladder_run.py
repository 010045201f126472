"""Turns, repetitions and warm-ups, with sides that only note what was asked of them."""

import contextlib

import pytest

from octavo.bench import ladder_run
from octavo.bench.ladder_run import Climb, Pace, Stage
from octavo.bench.rungs import parse_rungs

RUNGS = parse_rungs(["decode:1x8/8", "batch:2x8/8"])


class Sides:
    def __init__(self):
        self.log = []

    @contextlib.contextmanager
    def open(self, side):
        self.log.append(("open", side))

        def measure(rung, number):
            self.log.append((rung.kind, side, number))
            return {"output": float(number)}

        try:
            yield measure
        finally:
            self.log.append(("close", side))


def climb(sides, *, alternate, repetitions=2, num_warmups=1, rung_seconds=60.0):
    done = []
    pace = Pace(repetitions=repetitions, rung_seconds=rung_seconds, alternate=alternate)
    made = Climb(2, pace, lambda rung, side: done.append((rung.kind, side)))
    made.run(Stage(rungs=RUNGS, sides=[0, 1], opener=sides.open, num_warmups=num_warmups))
    return made, done


def test_alternating_sides_are_open_together_and_do_the_same_work():
    sides = Sides()
    made, done = climb(sides, alternate=True)
    assert sides.log == [
        ("open", 0), ("open", 1),
        ("decode", 0, 1), ("decode", 1, 1),  # warm-up
        ("decode", 0, 2), ("decode", 1, 2), ("decode", 0, 3), ("decode", 1, 3),
        ("batch", 0, 4), ("batch", 1, 4),
        ("batch", 0, 5), ("batch", 1, 5), ("batch", 0, 6), ("batch", 1, 6),
        ("close", 1), ("close", 0),
    ]  # fmt: skip
    assert done == [("decode", 0), ("decode", 1), ("batch", 0), ("batch", 1)]
    assert made.results[1]["batch:2x8/8"].values == {"output": [5.0, 6.0]}


def test_one_after_the_other_each_has_the_device_alone():
    sides = Sides()
    climb(sides, alternate=False, num_warmups=0, repetitions=1)
    assert sides.log == [
        ("open", 0), ("decode", 0, 1), ("batch", 0, 2), ("close", 0),
        ("open", 1), ("decode", 1, 1), ("batch", 1, 2), ("close", 1),
    ]  # fmt: skip


def test_long_rungs_are_repeated_twice(monkeypatch):
    sides = Sides()
    now = iter(range(0, 10**6, 50))
    monkeypatch.setattr(ladder_run.time, "monotonic", lambda: next(now))
    made, _ = climb(sides, alternate=True, repetitions=9, rung_seconds=40.0)
    assert [len(m.values["output"]) for m in made.results[0].values()] == [2, 2]


def test_sides_are_closed_when_one_fails():
    sides = Sides()

    def fail(side):
        raise RuntimeError("no")

    pace = Pace(repetitions=1, rung_seconds=1.0, alternate=True)

    def opener(side):
        return sides.open(side) if side == 0 else fail(side)

    with pytest.raises(RuntimeError):
        Climb(2, pace, lambda rung, side: None).run(
            Stage(rungs=RUNGS, sides=[0, 1], opener=opener, num_warmups=0)
        )
    assert sides.log == [("open", 0), ("close", 0)]
