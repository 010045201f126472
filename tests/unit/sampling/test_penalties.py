"""Penalties: what counts as prompt and as output, over steps, drafts and preemption."""

from __future__ import annotations

import torch

from octavo.sampling.sampler import Sampler
from octavo.types.sampling_params import SamplingParams
from support.sampling_requests import Driver, Sequence, draft_rows, make_state

VOCAB = 20


def _processed(driver: Driver, slot: int) -> list[float]:
    """Logits after the penalties of a row of 1s; the step's token is then an output."""
    entry = driver.step([slot], torch.ones(1, VOCAB)).logprobs.to_lists()[0]
    values = [0.0] * VOCAB
    for token, value in zip(entry.token_ids[1:], entry.logprobs[1:], strict=True):
        values[token] = round(value, 5)
    return values


def _driver(prompt: list[int], outputs: list[int], **penalties: float) -> Driver:
    driver = Driver(make_state(VOCAB, logprobs_mode="processed_logits"))
    params = SamplingParams(temperature=0.0, logprobs=-1, **penalties)
    driver.add(0, Sequence(params, prompt, 0, outputs))
    return driver


def test_repetition_looks_at_prompt_and_outputs() -> None:
    values = _processed(_driver([3, 3, 4], [5], repetition_penalty=2.0), 0)
    assert [i for i, value in enumerate(values) if value == 0.5] == [3, 4, 5]


def test_frequency_and_presence_look_at_outputs_only() -> None:
    driver = _driver([3, 4], [5, 5, 6], frequency_penalty=0.25, presence_penalty=0.125)
    values = _processed(driver, 0)
    assert {i: value for i, value in enumerate(values) if value != 1.0} == {5: 0.375, 6: 0.625}


def test_outputs_of_each_step_count_from_the_next() -> None:
    driver = _driver([3], [], frequency_penalty=0.25)
    assert _processed(driver, 0)[0] == 1.0  # takes token 0
    assert _processed(driver, 0)[0] == 0.75  # takes token 1
    assert _processed(driver, 0)[:3] == [0.75, 0.75, 1.0]


def test_counts_are_rebuilt_after_a_preemption() -> None:
    driver = _driver([3], [], frequency_penalty=0.25, repetition_penalty=2.0)
    for _ in range(3):
        _processed(driver, 0)
    driver.preempt(0, 7)
    values = _processed(driver, 7)
    assert values[:4] == [0.25, 0.25, 0.25, 0.5]


def test_a_reused_row_starts_from_nothing() -> None:
    driver = _driver([3], [4, 4], frequency_penalty=0.25)
    _processed(driver, 0)
    params = SamplingParams(temperature=0.0, logprobs=-1, presence_penalty=0.5)
    driver.add(0, Sequence(params, [8], 0, [9]))
    values = _processed(driver, 0)
    assert {i for i, value in enumerate(values) if value != 1.0} == {9}


def test_rejected_drafts_do_not_count() -> None:
    driver = _driver([3], [], frequency_penalty=0.25)
    state = driver.state
    state.flush()
    rows = draft_rows([(0, 1, [6, 6])])
    output = Sampler()(torch.ones(3, VOCAB), rows, state)
    entries = output.logprobs.to_lists()
    at_6 = [dict(zip(e.token_ids[1:], e.logprobs[1:], strict=True))[6] for e in entries.values()]
    assert at_6 == [1.0, 0.75, 0.5]
    state.commit(rows, torch.tensor([6, 2, 6]), torch.tensor([True, True, False]))
    driver.live[0].outputs += [6, 2]
    values = _processed(driver, 0)
    assert (values[6], values[2]) == (0.75, 0.75)
