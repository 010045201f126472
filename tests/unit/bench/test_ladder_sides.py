"""What a rung asks of an engine, and the figure that is made of the answers."""

import pytest

from octavo.bench.ladder_sides import _measure_batch
from octavo.bench.rungs import parse_rung


class FakeEngine:
    """A prompt takes 1 s, an output token 0.1 s, whatever the batch."""

    def __init__(self):
        self.batches = []

    def ask(self, batch):
        self.batches.append(batch)
        count = sum(group[0] for group in batch["groups"])
        output = batch["output"][1]
        seconds = 1.0 + 0.1 * (output - 1)
        tokens = sum(group[0] * (group[1] + batch["shared"]) for group in batch["groups"])
        return {"seconds": seconds, "input": tokens, "output": count * output}


def measure(word):
    engine = FakeEngine()
    return _measure_batch(engine, parse_rung(word), 3, 500), engine.batches


def test_a_decode_step_is_the_difference_of_two_batches():
    figures, (before, first, whole) = measure("decode:2x8+1x64/16")
    assert figures == {"time per token": pytest.approx(100.0)}
    assert first["groups"] == whole["groups"] == [[2, 8, 8], [1, 64, 64]]
    assert (first["output"], whole["output"]) == ([1, 1], [17, 17])
    # Both find their prompts cached.
    assert before == first
    assert first["seed"] == whole["seed"]


def test_a_shared_prefix_is_computed_before():
    figures, (before, batch) = measure("prefix:32+4x8/6")
    assert figures == {"time": 1.5}
    assert before["groups"] == [[1, 8, 8]]
    assert (before["shared"], before["shared_seed"]) == (batch["shared"], batch["shared_seed"])
    assert before["seed"] != batch["seed"]


def test_rates_and_times():
    assert measure("batch:3x8/5")[0] == {"output": 15 / 1.4}
    assert measure("prefill:1x8")[0] == {"time": 1000.0}
    assert measure("prefill:4x8")[0] == {"input": 32.0}


def test_repetitions_have_prompts_of_their_own():
    engine = FakeEngine()
    for number in (1, 2):
        _measure_batch(engine, parse_rung("prefix:32+4x8/6"), number, 500)
    assert len({batch["seed"] for batch in engine.batches}) == 4
    assert len({batch["shared_seed"] for batch in engine.batches}) == 2
