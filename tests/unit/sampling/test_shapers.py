"""Top-n-sigma, dynamic temperature, typical-p, XTC: worked examples and how often XTC fires."""

from __future__ import annotations

import math

import pytest
import torch

from octavo.types.sampling_params import SamplingParams
from support.sampling_requests import Driver, Sequence, make_state


def _processed(logits: list[float], count: int = 1, **fields) -> torch.Tensor:
    """[count, V]: what is left to draw from, of as many requests with seeds of their own."""
    size = len(logits)
    driver = Driver(make_state(size, max(count, 2), logprobs_mode="processed_logits"))
    for slot in range(count):
        params = SamplingParams(logprobs=-1, max_tokens=9, **fields)
        driver.add(slot, Sequence(params, [0], 1000 + slot))
    output = driver.step(list(range(count)), torch.tensor([logits] * count))
    assert output.logprobs is not None
    found = torch.empty(count, size)
    for row, entry in output.logprobs.to_lists().items():
        found[row, entry.token_ids[1:]] = torch.tensor(entry.logprobs[1:])
    return found


def _kept(logits: list[float], **fields) -> list[int]:
    return (_processed(logits, **fields)[0] > -9999).nonzero().flatten().tolist()


def _logs(*shares: float) -> list[float]:
    return [math.log(share) for share in shares]


def test_top_n_sigma_counts_deviations_from_the_largest() -> None:
    logits = [0.0, 2.0, 4.0, 6.0, 8.0]  # the deviation is the root of 8
    assert _kept(logits, top_n_sigma=1.0) == [3, 4]
    assert _kept(logits, top_n_sigma=2.0) == [2, 3, 4]
    assert _kept(logits, top_n_sigma=2.0, temperature=2.0) == [2, 3, 4]
    assert _kept(logits, top_n_sigma=-1.0) == [0, 1, 2, 3, 4]
    # The deviation is that of the tokens that may come.
    assert _kept(logits, top_n_sigma=2.0, allowed_token_ids=[0, 3, 4]) == [3, 4]


def test_typical_keeps_what_surprises_as_expected() -> None:
    """Entropy 1.02 nats; the distances of -log p from it are 0.33, 0.59, 1.28, 1.28."""
    logits = _logs(0.5, 0.2, 0.1, 0.1, 0.1)
    p = torch.tensor(logits).softmax(0)
    entropy = float(-(p * p.log()).sum())
    nearest = sorted(range(5), key=lambda token: abs(-math.log(p[token]) - entropy))
    assert nearest[:2] == [1, 0]
    assert _kept(logits, typical_p=0.15) == [1]
    assert _kept(logits, typical_p=0.6) == [0, 1]
    assert _kept(logits, typical_p=0.75) == [0, 1, 2, 3, 4]  # those alike come together


def test_xtc_leaves_the_least_of_the_likely_ones() -> None:
    logits = _logs(0.4, 0.3, 0.2, 0.06, 0.04)
    assert _kept(logits, xtc_probability=1.0, xtc_threshold=0.15) == [2, 3, 4]
    assert _kept(logits, xtc_probability=1.0, xtc_threshold=0.35) == [0, 1, 2, 3, 4]
    assert _kept(logits, xtc_probability=1.0, xtc_threshold=0.9) == [0, 1, 2, 3, 4]
    # Likely after what truncation has left.
    assert _kept(logits, xtc_probability=1.0, xtc_threshold=0.35, top_k=2) == [1]


def test_xtc_fires_as_often_as_it_should() -> None:
    found = _processed(_logs(0.5, 0.4, 0.1), 2000, xtc_probability=0.3, xtc_threshold=0.2)
    share = float((found[:, 0] <= -9999).float().mean())
    assert share == pytest.approx(0.3, abs=0.04)


def test_dynamic_temperature_follows_the_entropy() -> None:
    even, certain = [1.0, 1.0, 1.0, 1.0], [60.0, 0.0, 0.0, 0.0]
    options = {"temperature": 1.0, "dynatemp_range": 0.5}
    assert torch.allclose(_processed(even, **options)[0], torch.tensor(even) / 1.5)
    assert torch.allclose(_processed(certain, **options)[0], torch.tensor(certain) / 0.5)
    p = torch.tensor([2.0, 1.0, 0.0, 0.0]).softmax(0)
    share = float(-(p * p.log()).sum()) / math.log(4)
    expected = torch.tensor([2.0, 1.0, 0.0, 0.0]) / (0.5 + share**2)
    made = _processed([2.0, 1.0, 0.0, 0.0], dynatemp_exponent=2.0, **options)[0]
    assert torch.allclose(made, expected)


def test_a_temperature_that_would_fall_to_zero_stops_short_of_it() -> None:
    made = _processed([60.0, 0.0], temperature=0.5, dynatemp_range=2.0)
    assert made[0].tolist() == pytest.approx([6000.0, 0.0])


def test_greedy_requests_use_none_of_them() -> None:
    state = make_state(8)
    params = SamplingParams(
        temperature=0.0,
        top_n_sigma=1.0,
        typical_p=0.5,
        xtc_probability=1.0,
        dynatemp_range=1.0,
        mirostat_mode=2,
        max_tokens=3,
    )
    state.add(1, Sequence(params, [1], 0).as_new(1))
    assert [each.active for each in state.slot_states if each.active] == [1]
