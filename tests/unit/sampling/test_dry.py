"""Dry: runs found on the host, runs that grow on the device, windows, saturation."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from octavo.sampling.dry import suffix_runs
from octavo.types.sampling_params import SamplingParams
from support.sampling_oracle import subtract_repeats
from support.sampling_requests import Driver, Sequence, make_state

VOCAB = 12


def _runs(tokens: list[int], breakers: list[int]) -> list[int]:
    """By the definition, position by position."""
    found = []
    for end in range(len(tokens)):
        run = 0
        while (
            run <= end
            and tokens[end - run] == tokens[-1 - run]
            and tokens[end - run] not in breakers
        ):
            run += 1
        found.append(run)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_runs_are_what_the_definition_says(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        tokens = [rng.randrange(rng.choice([1, 2, 3])) for _ in range(rng.randint(1, 30))]
        breakers = rng.sample(range(3), rng.choice([0, 0, 1]))
        made = suffix_runs(np.array(tokens, np.int32), np.array(breakers, np.int32))
        # Of the last position the run is the whole sequence, and nobody looks at it.
        assert made.tolist()[:-1] == _runs(tokens, breakers)[:-1]


def test_a_sequence_of_one_token_takes_linear_time() -> None:
    made = suffix_runs(np.zeros(100_000, np.int32), np.zeros(0, np.int32))
    assert made[:-1].tolist() == list(range(1, 100_000))


def _step(params: SamplingParams, prompt: list[int], outputs: list[int]) -> torch.Tensor:
    """The logits of 0 after the penalty, when outputs were drawn one after the other."""
    state = make_state(VOCAB, logprobs_mode="processed_logits")
    driver = Driver(state)
    params.logprobs = -1
    driver.add(3, Sequence(params, prompt, 0))
    for token in [*outputs, 0]:
        logits = torch.zeros(1, VOCAB)
        logits[0, token] = 1e6
        if token == 0 and len(driver.live[3].outputs) == len(outputs):
            logits = torch.zeros(1, VOCAB)
        found = driver.step([3], logits)
    assert found.logprobs is not None
    lists = found.logprobs.to_lists()[0]
    values = torch.empty(VOCAB)
    values[lists.token_ids[1:]] = torch.tensor(lists.logprobs[1:])
    return values


def test_a_window_cuts_runs_short() -> None:
    rng = random.Random(1)
    for window in (-1, 2, 3, 4, 5, 6, 9):
        for _ in range(20):
            tokens = [rng.randrange(2) for _ in range(12)]
            params = SamplingParams(
                temperature=0.0,
                dry_multiplier=1.0,
                dry_allowed_length=1,
                dry_penalty_last_n=window,
                max_tokens=50,
            )
            expected = np.zeros(VOCAB, np.float32)
            subtract_repeats(expected, params, tokens)
            made = _step(params, tokens[:5], tokens[5:])
            torch.testing.assert_close(made, torch.from_numpy(expected))


def test_runs_go_on_from_the_prompt_into_the_outputs() -> None:
    params = SamplingParams(temperature=0.0, dry_multiplier=0.5, dry_base=2.0, max_tokens=50)
    made = _step(params, [1, 2, 3, 4, 5, 9, 1, 2], [3, 4])
    assert made[5] == -0.5 * 2.0**2  # a run of 4, of which 2 are allowed
    assert made.count_nonzero() == 1


def test_a_breaker_ends_runs() -> None:
    params = SamplingParams(
        temperature=0.0, dry_multiplier=0.5, dry_base=2.0, dry_breaker_ids=[3], max_tokens=50
    )
    assert _step(params, [1, 2, 3, 4, 5, 6, 1, 2], [3, 4]).count_nonzero() == 0
    assert _step(params, [1, 2, 3, 4, 5, 6, 1, 2], [3, 4, 5])[6] == -0.5


def test_a_penalty_beyond_float32_is_no_broken_row() -> None:
    params = SamplingParams(temperature=0.0, dry_multiplier=1000.0, dry_base=1000.0, max_tokens=99)
    made = _step(params, [7] * 60, [])
    assert made[7] < -9000  # what logprobs show of it is cut off
    assert made.isfinite().all()


def test_off_is_off() -> None:
    for fields in ({"dry_multiplier": 0.0}, {"dry_multiplier": 2.0, "dry_penalty_last_n": 0}):
        params = SamplingParams(temperature=0.0, max_tokens=50, **fields)
        state = make_state(VOCAB)
        state.add(1, Sequence(params, [1, 1, 1, 1], 0).as_new(1))
        assert state.history.active == 0
