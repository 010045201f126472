import time

import pytest

from octavo.utils.phases import Phases, phase_table, process_start


def test_phases_sum_to_the_wall_time():
    began = time.monotonic() - 5.0
    phases = Phases(began)
    phases.add({"process spawn": 1.5, "imports": -0.2})
    with phases("weights"):
        pass
    with phases("weights"):
        pass
    complete = phases.complete()
    assert list(complete) == ["process spawn", "imports", "weights", "other"]
    assert complete["imports"] == 0.0
    assert sum(complete.values()) == pytest.approx(time.monotonic() - began, abs=0.1)


def test_what_a_part_could_not_name_is_not_counted_twice():
    phases = Phases(time.monotonic() - 10.0)
    phases.add({"plan": 1.0, "other": 4.0})
    complete = phases.complete()
    assert sum(complete.values()) == pytest.approx(10.0, abs=0.1)
    assert complete["other"] == pytest.approx(9.0, abs=0.1)


def test_a_phase_counts_when_it_fails():
    phases = Phases()
    with pytest.raises(ValueError, match="x"), phases("plan"):
        raise ValueError("x")
    assert "plan" in phases.seconds()


def test_table():
    lines = phase_table({"plan": 0.25, "weights": 2.0}).splitlines()
    assert [line.split() for line in lines] == [
        ["plan", "0.25", "s"],
        ["weights", "2.00", "s"],
        ["sum", "2.25", "s"],
    ]


def test_process_start_is_in_the_past_and_stays():
    first = process_start()
    assert first < time.monotonic()
    assert process_start() == pytest.approx(first, abs=0.05)
