"""SlotParams: what the device gets, and who needs which stage."""

from __future__ import annotations

import pytest
import torch

from octavo.sampling.slot_params import NUCLEUS_CANDIDATES, SlotParams, is_greedy
from octavo.sampling.staging import Staging
from octavo.types.sampling_params import SamplingParams
from support.sampling_requests import CPU, Sequence

VOCAB = 1000


def _make() -> tuple[SlotParams, Staging]:
    staging = Staging(CPU)
    return SlotParams(8, VOCAB, staging), staging


def _add(params: SlotParams, slot: int, sampling: SamplingParams, seed: int = 0) -> None:
    params.add(slot, Sequence(sampling, [1, 2, 3], seed).as_new(slot))


def test_values_reach_the_device_with_the_flush() -> None:
    params, staging = _make()
    _add(params, 5, SamplingParams(temperature=0.25, top_p=0.5, top_k=7, min_p=0.125), 3 << 32 | 9)
    _add(params, 2, SamplingParams(), -1)
    assert params.temperature.tolist() == [1.0] * 8
    params.flush()
    staging.flush()
    assert params.temperature[5] == 0.25
    assert params.top_p[5] == 0.5
    assert params.log_min_p[5] == torch.tensor(0.125).log()
    assert params.log_min_p[2] == -torch.inf
    assert params.top_k[[5, 2]].tolist() == [7, VOCAB]
    assert params.seed_low[[5, 2]].tolist() == [9, -1]
    assert params.seed_high[[5, 2]].tolist() == [3, -1]
    assert params.prompt_len[[5, 2, 0]].tolist() == [3, 3, 0]


@pytest.mark.parametrize(
    ("sampling", "greedy"),
    [
        (SamplingParams(temperature=0.0), True),
        (SamplingParams(temperature=1e-9), True),
        (SamplingParams(top_k=1), True),
        (SamplingParams(temperature=0.001), False),
        (SamplingParams(top_k=2), False),
    ],
)
def test_greedy(sampling: SamplingParams, greedy: bool) -> None:
    assert is_greedy(sampling) is greedy
    params, _ = _make()
    _add(params, 0, sampling)
    assert (0 in params.random) is not greedy


def test_stages_hold_the_slots_that_need_them() -> None:
    params, _ = _make()
    _add(params, 0, SamplingParams())
    _add(params, 1, SamplingParams(top_k=VOCAB + 5))
    _add(params, 2, SamplingParams(top_p=0.9))
    _add(params, 3, SamplingParams(top_k=30, min_p=0.1))
    _add(params, 4, SamplingParams(temperature=0.0, top_p=0.9, min_p=0.1, logprobs=0))
    _add(params, 5, SamplingParams(logprobs=-1))
    assert set(params.whole_softmax) == {0, 1, 5}
    assert set(params.truncated) == {2, 3}
    assert set(params.min_p_users) == {3}
    assert (params.logprobs, set(params.all_logprobs)) == ({4: 0}, {5})
    assert params.num_candidates([2, 3]) == NUCLEUS_CANDIDATES
    assert params.num_candidates([3]) == 31
    for slot in range(6):
        params.remove(slot)
    assert params.active == 0
    assert not params.random
    assert not params.all_logprobs


def test_a_removed_slot_is_not_written() -> None:
    params, staging = _make()
    _add(params, 0, SamplingParams(temperature=0.5))
    params.remove(0)
    params.flush()
    staging.flush()
    assert torch.equal(params.temperature, torch.ones(8))
