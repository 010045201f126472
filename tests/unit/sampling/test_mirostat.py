"""Mirostat: that it comes to its target, and that a resumed request goes on with its mu."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from octavo.types.sampling_params import SamplingParams
from support.sampling_oracle import probabilities
from support.sampling_requests import Driver, Sequence, make_state, mirostat_mus

VOCAB = 2000


def _driver(**fields) -> Driver:
    driver = Driver(make_state(VOCAB, max_model_len=1024))
    params = SamplingParams(max_tokens=1000, **fields)
    driver.add(4, Sequence(params, [1, 2], 99))
    return driver


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tau", [3.0, 5.0])
def test_the_surprise_of_the_text_comes_to_tau(version: int, tau: float) -> None:
    driver = _driver(mirostat_mode=version, mirostat_tau=tau, mirostat_eta=0.2)
    ranks = torch.arange(1, VOCAB + 1).float()
    logits = (-1.1 * ranks.log())[None]  # Zipf's law
    bits = -np.log2(probabilities(logits[0].numpy()))
    for _ in range(400):
        driver.step([4], logits)
    told = [bits[token] for token in driver.live[4].outputs[100:]]
    assert np.mean(told) == pytest.approx(tau, abs=0.25)


def test_a_resumed_request_goes_on_as_if_nothing_had_been() -> None:
    torch.manual_seed(1)
    steps = torch.randn(30, 1, VOCAB) * 3
    whole, cut = (_driver(mirostat_mode=2, mirostat_tau=3.0, mirostat_eta=0.7) for _ in range(2))
    slot = 4
    for number, logits in enumerate(steps):
        whole.step([4], logits)
        if number % 4 == 3:
            cut.preempt(slot, slot + 1)
            slot += 1
        cut.step([slot], logits)
    assert cut.live[slot].outputs == whole.live[4].outputs
    assert cut.live[slot].mu == whole.live[4].mu


def test_mu_begins_at_twice_tau_and_moves_by_the_error() -> None:
    driver = _driver(mirostat_mode=2, mirostat_tau=3.0, mirostat_eta=0.5)
    logits = torch.full((1, VOCAB), -50.0)
    logits[0, 8] = 5.0  # no surprise at all
    assert mirostat_mus(driver.step([4], logits)) == {0: pytest.approx(6.0 + 0.5 * 3.0)}


def test_the_likeliest_token_stays_however_surprising() -> None:
    driver = _driver(mirostat_mode=2, mirostat_tau=0.01)
    logits = torch.zeros(1, VOCAB)
    logits[0, 77] = 0.1
    assert driver.step([4], logits).token_ids.tolist() == [77]


def test_greedy_requests_have_no_mu() -> None:
    driver = _driver(mirostat_mode=2, temperature=0.0)
    assert driver.step([4], torch.randn(1, VOCAB)).mirostat_mu == []
