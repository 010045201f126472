"""Methods are timed while they are watched, and only then."""

import time

import pytest

from octavo.utils.profiling import HostSpans


class Adder:
    def __init__(self):
        self.total = 0

    def add(self, number, *, times=1):
        if number < 0:
            raise ValueError
        self.total += number * times
        return self.total


def test_a_watched_method_leaves_spans_and_works_as_before():
    adder, spans = Adder(), HostSpans()
    spans.watch(adder, "add", "adding", lambda args, result: {"got": args[0], "gave": result})
    before = time.time_ns()
    assert adder.add(2, times=3) == 6
    assert adder.add(1) == 7
    after = time.time_ns()
    first, second = spans.stop()
    assert (first.name, first.args) == ("adding", {"got": 2, "gave": 6})
    assert before <= first.begin <= first.end <= second.begin <= second.end <= after


def test_after_the_stop_the_class_has_its_method_back():
    adder, other, spans = Adder(), Adder(), HostSpans()
    spans.watch(adder, "add", "adding")
    other.add(1)
    spans.stop()
    assert vars(adder) == {"total": 0}
    adder.add(1)
    assert spans.stop() == []


def test_an_error_passes_through_and_leaves_no_span():
    adder, spans = Adder(), HostSpans()
    spans.watch(adder, "add", "adding")
    with pytest.raises(ValueError):  # noqa: PT011
        adder.add(-1)
    assert spans.stop() == []
