"""Sampler: batches, batch independence, cost in tensor calls, broken rows, order of stages."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from octavo.sampling.sampler import Sampler
from octavo.types.sampling_params import SamplingParams
from support.sampling_requests import Driver, Sequence, draft_rows, make_rows, make_state

VOCAB = 49_152  # above the size at which PyTorch splits a reduction over threads


def _params(kind: int, **more) -> SamplingParams:
    kinds = [
        {"temperature": 1.0},
        {"temperature": 0.0, "repetition_penalty": 1.3},
        {"temperature": 0.8, "top_p": 0.9},
        {"temperature": 1.3, "top_k": 40, "top_p": 0.95},
        {"temperature": 0.0},
        {"temperature": 1.0, "min_p": 0.05, "frequency_penalty": 0.5},
        {"temperature": 1.0, "top_p": 0.999, "logit_bias": {7: 3.0}},
        {"temperature": 0.7, "top_k": 5, "bad_words_token_ids": [[1, 2], [3]]},
    ]
    return SamplingParams(**kinds[kind % len(kinds)], **more)


def _sequences(count: int) -> list[Sequence]:
    rng = random.Random(11)
    return [
        Sequence(_params(i, logprobs=3 if i % 3 == 0 else None), [rng.randrange(9)] * 4, 1000 + i)
        for i in range(count)
    ]


def test_rows_are_the_same_alone_and_in_a_batch_of_64() -> None:
    torch.manual_seed(0)
    together = Driver(make_state(VOCAB, 64))
    for slot, sequence in enumerate(_sequences(64)):
        together.add(slot, sequence)
    alone = {}
    for slot in range(0, 64, 5):
        alone[slot] = Driver(make_state(VOCAB, 64))
        alone[slot].add(3, _sequences(64)[slot])
    for _ in range(2):
        logits = torch.randn(64, VOCAB) * 2
        logits[:, 1:9] += 6
        order = torch.randperm(64).tolist()
        batch = together.step(order, logits)
        lists = batch.logprobs.to_lists()
        for slot, driver in alone.items():
            row = order.index(slot)
            single = driver.step([3], logits[row : row + 1])
            assert single.token_ids[0] == batch.token_ids[row]
            if slot % 3 == 0:
                assert single.logprobs.to_lists()[0] == lists[row]


def test_a_seed_gives_the_same_tokens_again_and_another_seed_others() -> None:
    logits = torch.zeros(1, 1000)
    runs = []
    for seed in (5, 5, 6):
        driver = Driver(make_state(1000))
        driver.add(0, Sequence(SamplingParams(), [1], seed))
        for _ in range(8):
            driver.step([0], logits)
        runs.append(driver.live[0].outputs)
    assert runs[0] == runs[1] != runs[2]
    assert len(set(runs[0])) > 4  # the noise changes with the position


class _CountCalls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls[str(func)] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kinds", [[0], [1], [2], [3], [4], [5], [6], [7], list(range(8))], ids=str)
def test_number_of_tensor_calls_does_not_grow_with_rows(kinds: list[int]) -> None:
    counts = []
    for rows in (8, 64):
        torch.manual_seed(1)
        driver = Driver(make_state(512, 64))
        for slot in range(rows):
            kind = kinds[slot % len(kinds)]
            driver.add(slot, Sequence(_params(kind, logprobs=2), [slot % 9, 4], slot))
        driver.step(list(range(rows)), torch.randn(rows, 512) * 8)
        step_rows = driver.rows(list(range(rows)))
        with _CountCalls() as counter:
            output = Sampler()(torch.randn(rows, 512) * 8, step_rows, driver.state)
            driver.state.commit(step_rows, output.token_ids)
        counts.append(counter.calls)
    assert counts[0] == counts[1]


def test_greedy_rows_alone_cost_a_few_calls() -> None:
    driver = Driver(make_state(512))
    for slot in range(8):
        driver.add(slot, Sequence(SamplingParams(temperature=0.0), [1], slot))
    logits = torch.randn(8, 512)
    driver.step(list(range(8)), logits)
    rows = driver.rows(list(range(8)))
    with _CountCalls() as counter:
        Sampler()(logits, rows, driver.state)
    assert counter.calls.total() <= 15


class _RefuseReads(TorchDispatchMode):
    """Fails on whatever would wait for a GPU."""

    waits = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "unique")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert not any(f"aten.{name}" in str(func) for name in self.waits), func
        return func(*args, **(kwargs or {}))


def test_a_step_reads_nothing_back() -> None:
    driver = Driver(make_state(256))
    for slot in range(16):
        kind = [0, 1, 4, 5, 7][slot % 5]  # top-p asks a CPU whether it saw enough; see sampler
        params = _params(kind, logprobs=2, min_tokens=3, stop_token_ids=[4])
        params.top_k = 0
        driver.add(slot, Sequence(params, [1, 2], slot))
    driver.state.flush()
    rows = driver.rows(list(range(16)))
    with _RefuseReads():
        output = Sampler()(torch.randn(16, 256), rows, driver.state)
        driver.state.commit(rows, output.token_ids)


@pytest.mark.parametrize("mode", ["raw_logprobs", "processed_logprobs", "raw_logits"])
def test_a_broken_row_is_flagged_and_the_others_are_untouched(mode: str) -> None:
    torch.manual_seed(2)
    logits = torch.randn(8, 300)
    outputs = []
    for broken in (False, True):
        driver = Driver(make_state(300, logprobs_mode=mode))
        for slot in range(8):
            driver.add(slot, Sequence(_params(slot, logprobs=4), [1], slot))
        if broken:
            logits[0, 17] = torch.nan
            logits[1] = -torch.inf
            logits[3, 250] = torch.nan
            logits[4, 2] = torch.inf
        outputs.append(driver.step(list(range(8)), logits))
    good, bad = outputs
    assert good.nan_rows.tolist() == [False] * 8
    assert bad.nan_rows.tolist() == [True, True, False, True, True, False, False, False]
    lists = bad.logprobs.to_lists()
    for row in range(8):
        if bad.nan_rows[row]:
            assert bad.token_ids[row] == 0
        else:
            assert bad.token_ids[row] == good.token_ids[row]
            assert lists[row] == good.logprobs.to_lists()[row]
        assert all(math.isfinite(value) for value in lists[row].logprobs)


def test_a_nan_is_seen_where_a_mask_covers_it() -> None:
    driver = Driver(make_state(10))
    driver.add(0, Sequence(SamplingParams(allowed_token_ids=[3], temperature=0.0), [1], 0))
    logits = torch.zeros(1, 10)
    logits[0, 7] = torch.nan
    assert driver.step([0], logits).nan_rows.tolist() == [True]


def test_a_row_with_every_token_masked_is_flagged() -> None:
    driver = Driver(make_state(10))
    params = SamplingParams(allowed_token_ids=[3], bad_words_token_ids=[[3]], temperature=0.0)
    driver.add(0, Sequence(params, [1], 0))
    driver.add(1, Sequence(SamplingParams(temperature=0.0), [1], 0))
    output = driver.step([0, 1], torch.eye(10)[:2])
    assert output.nan_rows.tolist() == [True, False]
    assert output.token_ids.tolist() == [0, 1]


def test_top_k_1_is_greedy_also_among_equals() -> None:
    driver = Driver(make_state(50))
    for slot in range(20):
        driver.add(slot, Sequence(SamplingParams(top_k=1, temperature=2.0), [1], slot))
    logits = torch.zeros(20, 50)
    logits[:, 30:] = 2.0
    assert driver.step(list(range(20)), logits).token_ids.tolist() == [30] * 20


def test_tiny_temperatures_are_greedy() -> None:
    driver = Driver(make_state(50))
    for slot, temperature in enumerate((1e-30, 1e-8, 1e-4)):
        driver.add(slot, Sequence(SamplingParams(temperature=temperature), [1], slot))
    logits = torch.linspace(0, 200, 50).expand(3, -1).clone()
    assert driver.step([0, 1, 2], logits).token_ids.tolist() == [49, 49, 49]


def test_bias_comes_before_penalties_and_penalties_before_temperature() -> None:
    """With a bias of +4 on a seen token: (2 + 4) / 3 = 2 beats 1.9; another order would not."""
    driver = Driver(make_state(3, logprobs_mode="processed_logits"))
    params = SamplingParams(
        temperature=0.5, repetition_penalty=3.0, logit_bias={0: 4.0}, logprobs=-1
    )
    driver.add(0, Sequence(params, [0], 0))
    output = driver.step([0], torch.tensor([[2.0, 1.9, -8.0]]))
    entry = output.logprobs.to_lists()[0]
    assert entry.token_ids[1:] == [0, 1, 2]
    assert entry.logprobs[1:] == pytest.approx([4.0, 3.8, -16.0])


def test_raw_logprobs_do_not_change_with_the_parameters() -> None:
    logits = torch.randn(1, 100)
    tops = []
    for params in (
        SamplingParams(temperature=0.0, logprobs=3),
        SamplingParams(temperature=1.7, top_k=2, logit_bias={5: 50.0}, logprobs=3),
        SamplingParams(temperature=0.0, presence_penalty=2.0, logprobs=3),
    ):
        driver = Driver(make_state(100))
        driver.add(0, Sequence(params, list(range(100)), 1))
        entry = driver.step([0], logits).logprobs.to_lists()[0]
        tops.append((entry.token_ids[1:], entry.logprobs[1:]))
    assert tops[0] == tops[1] == tops[2]
    expected = logits[0].log_softmax(0).topk(3)
    assert tops[0][0] == expected.indices.tolist()
    assert tops[0][1] == pytest.approx(expected.values.tolist())


def test_rows_without_logprobs_have_none() -> None:
    driver = Driver(make_state(100))
    driver.add(0, Sequence(SamplingParams(), [1], 0))
    driver.add(1, Sequence(SamplingParams(logprobs=2), [1], 0))
    driver.add(2, Sequence(SamplingParams(logprobs=-1), [1], 0))
    driver.add(3, Sequence(SamplingParams(logprobs=0), [1], 0))
    assert driver.step([0], torch.randn(1, 100)).logprobs is None
    lists = driver.step([2, 0, 3, 1], torch.randn(4, 100)).logprobs.to_lists()
    assert {row: len(entry.token_ids) for row, entry in lists.items()} == {0: 101, 2: 1, 3: 3}


def test_a_step_without_rows() -> None:
    output = Sampler()(torch.empty(0, 10), make_rows([], []), make_state(10))
    assert output.token_ids.shape == (0,)
    assert output.logprobs is None


def test_draft_rows_draw_what_later_steps_would() -> None:
    """The noise belongs to the position, so speculation does not change a seeded request."""
    torch.manual_seed(3)
    logits = torch.randn(4, 200)
    plain = Driver(make_state(200))
    params = SamplingParams(temperature=0.9, frequency_penalty=1.0, top_p=0.9)
    plain.add(0, Sequence(params, [1, 2], 77))
    for step in range(4):
        plain.step([0], logits[step : step + 1])
    tokens = plain.live[0].outputs
    state = make_state(200)
    state.add(0, Sequence(params, [1, 2], 77).as_new(0))
    state.flush()
    drafted = Sampler()(logits.clone(), draft_rows([(0, 2, tokens[:3])]), state)
    assert drafted.token_ids.tolist() == tokens
