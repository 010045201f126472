"""ThinkingBudget: when the end of thinking is written, and what it is written over."""

from __future__ import annotations

import torch

from octavo.types.sampling_extras import ThinkingMarks
from octavo.types.sampling_params import SamplingParams
from support.sampling_requests import Driver, Sequence, make_state

VOCAB, START, END = 20, 10, 11
FREE = 7  # what the logits always want


def _generate(prompt: list[int], steps: int, marks: ThinkingMarks, **more) -> list[int]:
    params = SamplingParams(thinking_marks=marks, max_tokens=99, **({"temperature": 0.0} | more))
    driver = Driver(make_state(VOCAB))
    driver.add(2, Sequence(params, prompt, 0))
    for _ in range(steps):
        logits = torch.zeros(1, VOCAB)
        logits[0, FREE] = 50.0
        output = driver.step([2], logits)
        assert not output.nan_rows.any()
    return driver.live[2].outputs


SIMPLE = ThinkingMarks([[START]], [[END]])


def test_a_thought_ends_after_as_many_tokens() -> None:
    for budget in (0, 1, 3):
        made = _generate([1, START], 6, SIMPLE, thinking_token_budget=budget)
        assert made == [FREE] * budget + [END] + [FREE] * (5 - budget)


def test_tokens_of_the_prompt_count_that_are_within_the_thought() -> None:
    assert _generate([START, 1, 2], 3, SIMPLE, thinking_token_budget=3) == [FREE, END, FREE]


def test_nothing_is_written_outside_of_thoughts() -> None:
    for prompt in ([1, 2], [START, 3, END], [START, END, START, 4, END, 5]):
        assert _generate(prompt, 4, SIMPLE, thinking_token_budget=0) == [FREE] * 4


def test_every_thought_has_its_budget() -> None:
    made = _generate([START, 3, END, 4, START], 4, SIMPLE, thinking_token_budget=2)
    assert made == [FREE, FREE, END, FREE]


def test_an_output_may_begin_within_a_thought_that_nothing_starts() -> None:
    marks = ThinkingMarks([[START]], [[END]], inside=True)
    assert _generate([1, END], 4, marks, thinking_token_budget=2) == [FREE, FREE, END, FREE]


def test_marks_of_several_tokens_are_told_whole() -> None:
    marks = ThinkingMarks([[1, 2], [3]], [[4, 5, 6], [8]])
    made = _generate([1, 2], 7, marks, thinking_token_budget=2)
    assert made == [FREE, FREE, 4, 5, 6, FREE, FREE]
    assert _generate([2, 1], 2, marks, thinking_token_budget=0) == [FREE] * 2
    assert _generate([3, 8], 2, marks, thinking_token_budget=0) == [FREE] * 2
    assert _generate([3, 4, 5], 4, marks, thinking_token_budget=3) == [FREE, 4, 5, 6]


def test_the_end_comes_whatever_else_bars_it() -> None:
    made = _generate(
        [START],
        3,
        SIMPLE,
        thinking_token_budget=1,
        allowed_token_ids=[FREE],
        min_tokens=9,
        stop_token_ids=[END],
        bad_words_token_ids=[[END]],
        temperature=1.0,
        top_k=3,
        seed=1,
    )
    assert made == [FREE, END, FREE]


def test_rows_without_a_budget_are_left_alone() -> None:
    driver = Driver(make_state(VOCAB))
    budget = SamplingParams(
        temperature=0.0, thinking_token_budget=0, thinking_marks=SIMPLE, max_tokens=9
    )
    driver.add(0, Sequence(SamplingParams(temperature=0.0, max_tokens=9), [START], 0))
    driver.add(1, Sequence(budget, [START], 0))
    logits = torch.zeros(2, VOCAB)
    logits[:, FREE] = 1.0
    assert driver.step([0, 1], logits).token_ids.tolist() == [FREE, END]
