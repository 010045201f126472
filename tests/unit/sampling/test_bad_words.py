"""BadWords: which token is barred after which outputs."""

from __future__ import annotations

import pytest
import torch

from octavo.sampling.sampler import Sampler
from octavo.types.sampling_params import SamplingParams
from support.sampling_requests import Driver, Sequence, make_rows, make_state

VOCAB = 12


def _barred(words: list[list[int]], prompt: list[int], outputs: list[int]) -> set[int]:
    state = make_state(VOCAB, logprobs_mode="processed_logits")
    params = SamplingParams(temperature=0.0, logprobs=-1, bad_words_token_ids=words)
    state.add(0, Sequence(params, prompt, 0, outputs).as_new(0))
    state.flush()
    rows = make_rows([0], [len(prompt) + len(outputs)])
    entry = Sampler()(torch.zeros(1, VOCAB), rows, state).logprobs.to_lists()[0]
    pairs = zip(entry.token_ids[1:], entry.logprobs[1:], strict=True)
    return {token for token, value in pairs if value < -1000}


@pytest.mark.parametrize(
    ("words", "prompt", "outputs", "barred"),
    [
        ([[4]], [1], [], {4}),
        ([[4], [5], [4]], [1], [4], {4, 5}),
        ([[2, 3]], [1], [2], {3}),
        ([[2, 3]], [1], [3], set()),
        ([[2, 3]], [2], [], set()),  # the beginning is in the prompt
        ([[2, 2, 3]], [2], [2], set()),
        ([[2, 2, 3]], [1], [2, 2], {3}),
        ([[1, 2, 3, 4]], [9], [7, 1, 2, 3], {4}),
        ([[1, 2, 3, 4]], [9], [1, 2, 7, 3], set()),
        ([[1, 2, 3], [9, 3], [8], [2, 5]], [0], [1, 2], {3, 8, 5}),
        ([[1, 7], [2, 7]], [0], [1], {7}),  # one of two words with the same end
        ([[]], [1], [], set()),
        ([[0, 1]], [5], [0], {1}),
    ],
)
def test_barred_tokens(
    words: list[list[int]], prompt: list[int], outputs: list[int], barred: set[int]
) -> None:
    assert _barred(words, prompt, outputs) == barred


def test_words_are_followed_over_steps_and_preemption() -> None:
    driver = Driver(make_state(VOCAB))
    params = SamplingParams(temperature=0.0, bad_words_token_ids=[[3, 3, 3], [2, 2]])
    driver.add(0, Sequence(params, [3, 3], 0))
    driver.add(1, Sequence(SamplingParams(temperature=0.0), [3], 0))
    logits = torch.zeros(2, VOCAB)
    logits[:, 3], logits[:, 2] = 2.0, 1.0
    for _ in range(4):
        driver.step([0, 1], logits)
    driver.preempt(0, 5)
    for _ in range(4):
        driver.step([5, 1], logits)
    assert driver.live[5].outputs == [3, 3, 2, 3, 3, 2, 3, 3]
    assert driver.live[1].outputs == [3] * 8


def test_words_of_one_token_need_no_history() -> None:
    state = make_state(VOCAB)
    params = SamplingParams(bad_words_token_ids=[[3], [4]])
    state.add(0, Sequence(params, [1], 0).as_new(0))
    assert state.history.active == 0


def test_a_sequence_may_fill_the_model() -> None:
    driver = Driver(make_state(VOCAB, max_model_len=4))
    params = SamplingParams(temperature=0.0, bad_words_token_ids=[[0, 0]])
    driver.add(0, Sequence(params, [1], 0))
    for _ in range(5):  # a step past the end, as one in flight would be
        driver.step([0], torch.zeros(1, VOCAB))
    assert driver.live[0].outputs[:3] == [0, 1, 0]
