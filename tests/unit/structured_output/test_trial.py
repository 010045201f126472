"""Trials: verdicts of a child process, and its end when it takes too long."""

from __future__ import annotations

import os
import signal

import msgspec
import pytest

from octavo.structured_output.interface import GrammarError
from octavo.structured_output.trial import GrammarTrials, judge
from octavo.types.errors import QueueFullError
from octavo.types.sampling_params import StructuredOutputsParams


def spec(**fields):
    return StructuredOutputsParams(**fields)


@pytest.fixture
def trials():
    trials = GrammarTrials("guidance", budget=20.0, num_children=1)
    yield trials
    trials.close()


def test_verdicts_and_their_field(trials):
    trials.check(spec(regex="a{3}"))
    for _ in range(2):  # the second one is remembered
        with pytest.raises(GrammarError, match="unclosed") as caught:
            trials.check(spec(regex="[a-"))
        assert caught.value.param == "regex"


def test_one_that_takes_too_long_is_killed_and_the_next_is_served(trials):
    trials.check(spec(regex="a"))
    child = trials._free[0]
    process = child._process
    os.kill(process.pid, signal.SIGSTOP)
    trials._budget = 0.05
    with pytest.raises(GrammarError, match=r"within 0\.05 s") as caught:
        trials.check(spec(regex="b"))
    assert caught.value.param == "regex"
    assert process.poll() is not None
    trials._budget = 20.0
    trials.check(spec(regex="c"))
    assert child._process.pid != process.pid


def test_a_child_that_dies_is_replaced(trials):
    trials.check(spec(regex="a"))
    trials._free[0]._process.kill()
    trials._free[0]._process.wait()
    trials.check(spec(regex="b"))


def test_too_many_are_sent_away(trials, monkeypatch):
    monkeypatch.setattr("octavo.structured_output.trial.MAX_WAITING", 0)
    with pytest.raises(QueueFullError):
        trials.check(spec(regex="a"))


def test_the_child_s_own_part():
    assert judge("guidance", msgspec.msgpack.encode(spec(regex="a"))).error is None
    verdict = judge("guidance", msgspec.msgpack.encode(spec(json={"not": {}})))
    assert "'not'" in verdict.error
    assert verdict.param == "json"
