"""logit_bias, allowed_token_ids and min_tokens."""

from __future__ import annotations

import pytest
import torch

from octavo.sampling.logit_bias import token_array
from octavo.sampling.sampler import Sampler
from octavo.types.errors import RequestError
from octavo.types.sampling_params import SamplingParams
from support.sampling_requests import Driver, Sequence, draft_rows, make_state

VOCAB = 30


def _greedy(**more) -> SamplingParams:
    return SamplingParams(temperature=0.0, **more)


def _tokens(driver: Driver, steps: int, logits: torch.Tensor) -> list[int]:
    for _ in range(steps):
        driver.step(list(driver.live), logits)
    return next(iter(driver.live.values())).outputs


def test_bias_moves_the_choice_of_its_request_only() -> None:
    driver = Driver(make_state(VOCAB))
    driver.add(0, Sequence(_greedy(logit_bias={3: 5.0, 1: -100.0}), [1], 0))
    driver.add(1, Sequence(_greedy(), [1], 0))
    driver.add(2, Sequence(_greedy(logit_bias={i: float(i) for i in range(20)}), [1], 0))
    logits = torch.zeros(3, VOCAB)
    logits[:, 1] = 4.0
    assert driver.step([2, 1, 0], logits).token_ids.tolist() == [19, 1, 3]


def test_only_allowed_tokens_are_drawn() -> None:
    driver = Driver(make_state(VOCAB))
    for slot in range(40):
        allowed = [slot % VOCAB, (slot + 11) % VOCAB]
        driver.add(slot, Sequence(SamplingParams(allowed_token_ids=allowed), [1], slot))
    for _ in range(5):
        driver.step(list(range(40)), torch.randn(40, VOCAB))
    for slot, sequence in driver.live.items():
        assert set(sequence.outputs) <= {slot % VOCAB, (slot + 11) % VOCAB}


def test_min_tokens_holds_back_every_eos_and_stop_id() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, [5, 6, 7]] = torch.tensor([9.0, 8.0, 7.0])
    for more, expected in (
        ({"eos_token_ids": [5, 6]}, [7, 7, 7, 5]),
        ({"eos_token_ids": [5], "stop_token_ids": [6, 7]}, [0, 0, 0, 5]),
        ({"eos_token_ids": [5], "stop_token_ids": [6], "ignore_eos": True}, [5, 5, 5, 5]),
        ({}, [5, 5, 5, 5]),
    ):
        driver = Driver(make_state(VOCAB))
        driver.add(0, Sequence(_greedy(min_tokens=3, **more), [1, 2], 0))
        assert _tokens(driver, 4, logits) == expected


def test_min_tokens_beats_a_bias() -> None:
    driver = Driver(make_state(VOCAB))
    params = _greedy(min_tokens=5, eos_token_ids=[2, 3], logit_bias={3: 100.0})
    driver.add(0, Sequence(params, [1], 0))
    assert _tokens(driver, 7, torch.zeros(1, VOCAB)) == [0] * 5 + [3, 3]


def test_min_tokens_costs_nothing_once_reached() -> None:
    driver = Driver(make_state(VOCAB))
    driver.add(0, Sequence(_greedy(min_tokens=3, eos_token_ids=[2]), [1], 0, outputs=[4]))
    assert driver.state.min_tokens.active == 1
    _tokens(driver, 2, torch.zeros(1, VOCAB))
    assert driver.state.min_tokens.active == 0
    assert driver.state.plan(driver.rows([0])).editors == []
    driver.preempt(0, 1)
    assert driver.state.min_tokens.active == 0


def test_min_tokens_counts_drafts_by_position() -> None:
    state = make_state(VOCAB)
    state.add(0, Sequence(_greedy(min_tokens=2, eos_token_ids=[0]), [1], 0).as_new(0))
    state.flush()
    output = Sampler()(torch.zeros(4, VOCAB), draft_rows([(0, 1, [1, 1, 1])]), state)
    assert output.token_ids.tolist() == [1, 1, 0, 0]


def test_token_array_names_the_id_at_fault() -> None:
    assert token_array("x", [0, 9], 10).tolist() == [0, 9]
    assert token_array("x", [], 10).tolist() == []
    with pytest.raises(RequestError, match=r"x holds the token id 10; ids are in \[0, 10\)"):
        token_array("x", [3, 10, 11], 10)
