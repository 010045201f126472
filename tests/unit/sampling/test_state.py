"""SamplingState: staging, plans, failures, steps ahead of the host."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from octavo.kernels.reference import sampling as reference
from octavo.kernels.slot_tables import Feature
from octavo.sampling.interface import Variant
from octavo.sampling.sampler import Sampler
from octavo.types.sampling_params import SamplingParams
from support.sampling_requests import Driver, Sequence, make_rows, make_state

EVERYTHING = SamplingParams(
    temperature=0.8,
    top_p=0.9,
    top_k=20,
    min_p=0.01,
    repetition_penalty=1.2,
    presence_penalty=0.4,
    logit_bias={3: 1.0},
    allowed_token_ids=list(range(60)),
    bad_words_token_ids=[[1, 2], [5]],
    min_tokens=4,
    stop_token_ids=[7],
    logprobs=2,
)


def _counts(state) -> list[int]:
    return [slot_state.active for slot_state in state.slot_states]


def test_a_plain_request_uses_only_the_parameters_of_its_slot() -> None:
    state = make_state(100)
    state.add(3, Sequence(SamplingParams(), [1, 2], 0).as_new(3))
    assert _counts(state) == [1] + [0] * (len(state.slot_states) - 1)
    plan = state.plan(make_rows([3], [2]))
    assert plan.editors == []
    assert plan.penalties is plan.history is plan.truncated is plan.min_p is None


def test_removing_a_slot_leaves_nothing() -> None:
    state = make_state(100)
    state.add(3, Sequence(EVERYTHING, [1, 2], 0).as_new(3))
    state.flush()
    assert all(count == 1 for count in _counts(state)[:5])
    state.remove(3)
    state.remove(3)
    assert _counts(state) == [0] * len(state.slot_states)
    assert state.history.tokens.shape[0] == 0


def test_changes_travel_in_one_copy_and_no_change_in_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copies = []
    original = torch.Tensor.to

    def counting(tensor, *args, **kwargs):
        if kwargs.get("non_blocking"):
            copies.append(tensor.numel())
        return original(tensor, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", counting)
    state = make_state(100)
    for slot in range(20):
        state.add(slot, Sequence(EVERYTHING, [1, 2, 3], slot).as_new(slot))
    state.flush()
    assert len(copies) == 1
    state.flush()
    assert len(copies) == 1


def test_steps_with_the_same_rows_share_a_plan() -> None:
    state = make_state(100)
    for slot in range(4):
        state.add(slot, Sequence(EVERYTHING, [1], slot).as_new(slot))
    state.flush()
    plan = state.plan(make_rows([2, 0], [1, 1]))
    assert state.plan(make_rows([2, 0], [2, 2])) is plan
    assert state.plan(make_rows([0, 2], [2, 2])) is not plan
    plan = state.plan(make_rows([0, 2], [3, 3]))
    state.remove(1)
    assert state.plan(make_rows([0, 2], [3, 3])) is not plan


def test_steps_can_run_ahead_of_the_host() -> None:
    """Three steps launched with positions only equal three steps whose tokens the host knows."""
    torch.manual_seed(0)
    logits = torch.randn(3, 8, 100)
    knowing = Driver(make_state(100))
    ahead = make_state(100)
    for slot in range(8):
        knowing.add(slot, Sequence(EVERYTHING, [1, 2], slot))
        ahead.add(slot, Sequence(EVERYTHING, [1, 2], slot).as_new(slot))
    slots = list(range(8))
    ahead.flush()
    on_device = []
    for step in range(3):
        rows = make_rows(slots, [2 + step] * 8)
        output = Sampler()(logits[step].clone(), rows, ahead)
        ahead.commit(rows, output.token_ids)
        on_device.append(output.token_ids)
    for step in range(3):
        # The host rebuilds every request from its tokens before each step.
        for slot in slots:
            knowing.preempt(slot, slot)
        assert torch.equal(knowing.step(slots, logits[step]).token_ids, on_device[step])


def test_tables_grow_while_requests_run() -> None:
    torch.manual_seed(1)
    drivers = [Driver(make_state(100)), Driver(make_state(100))]
    for step in range(12):
        drivers[0].add(step, Sequence(EVERYTHING, [1, step], step))
        if step == 0:
            for slot in range(1, 12):
                drivers[1].add(slot, Sequence(EVERYTHING, [1, slot], slot))
            drivers[1].add(0, Sequence(EVERYTHING, [1, 0], 0))
        live = list(drivers[0].live)
        logits = torch.randn(len(live), 100)
        tokens = [driver.step(live, logits).token_ids for driver in drivers]
        assert torch.equal(*tokens)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(logit_bias={100: 1.0}),
        SamplingParams(allowed_token_ids=[1, 500]),
        SamplingParams(bad_words_token_ids=[[3, 1 << 40]]),
        SamplingParams(min_tokens=2, stop_token_ids=[100]),
    ],
    ids=["logit_bias", "allowed_token_ids", "bad_words", "stop_token_ids"],
)
def test_an_id_outside_the_vocabulary_ends_its_request_alone(params: SamplingParams) -> None:
    driver = Driver(make_state(100))
    driver.add(0, Sequence(SamplingParams(temperature=0.0), [1], 0))
    driver.add(1, Sequence(params, [1], 0))
    output = driver.step([1, 0], torch.eye(100)[:2])
    assert list(output.row_errors) == [0]
    assert "[0, 100)" in output.row_errors[0]
    assert output.token_ids[1] == 1
    assert driver.state.params.active == 1
    driver.add(1, Sequence(SamplingParams(), [1], 0))
    assert driver.step([1, 0], torch.eye(100)[:2]).row_errors == {}


def test_a_slot_taken_and_left_before_a_flush_writes_nothing() -> None:
    state = make_state(100)
    state.add(0, Sequence(EVERYTHING, list(range(50)), 0).as_new(0))
    state.remove(0)
    small = SamplingParams(repetition_penalty=2.0, logit_bias={1: 1.0}, temperature=0.0)
    driver = Driver(state)
    driver.add(0, Sequence(small, [4], 0))
    logits = torch.full((1, 100), -1.0)
    logits[0, 4] = 1.0
    assert driver.step([0], logits).token_ids.tolist() == [4]


class _RefuseCalls(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise AssertionError(func)


DRAWING = SimpleNamespace(**{**vars(reference), "PREFERS_DRAW": True})
VARIANTS = [
    ({"temperature": 0.0}, Variant.GREEDY),
    ({"temperature": 0.0, "top_p": 0.5, "min_p": 0.1}, Variant.GREEDY),
    ({"top_k": 1}, Variant.GREEDY),
    ({}, Variant.RANDOM),
    ({"top_p": 0.9, "top_k": 5, "min_p": 0.1}, Variant.RANDOM),
    ({"temperature": 0.0, "repetition_penalty": 1.1}, Variant.EDITED),
    ({"presence_penalty": 0.1}, Variant.EDITED),
    ({"logit_bias": {3: 1.0}}, Variant.EDITED),
    ({"allowed_token_ids": [1, 2]}, Variant.EDITED),
    ({"min_tokens": 2, "stop_token_ids": [7]}, Variant.EDITED),
    ({"bad_words_token_ids": [[4], [5]]}, Variant.EDITED),
    ({"bad_words_token_ids": [[4], [5, 6]]}, Variant.HOST),
    ({"temperature": 0.0, "logprobs": 0}, Variant.HOST),
    ({"logprobs": -1}, Variant.HOST),
    ({"logit_bias": {100: 1.0}}, Variant.HOST),
]


@pytest.mark.parametrize(("params", "variant"), VARIANTS, ids=str)
def test_the_variant_is_that_of_the_most_demanding_row(params: dict, variant: Variant) -> None:
    state = make_state(100, kernels=DRAWING)
    state.add(0, Sequence(SamplingParams(temperature=0.0), [1], 0).as_new(0))
    state.add(1, Sequence(SamplingParams(**params), [1], 0).as_new(1))
    assert state.variant([0, 1]) is variant
    assert state.variant([0]) is Variant.GREEDY
    staged = make_state(100)
    staged.add(1, Sequence(SamplingParams(**params), [1], 0).as_new(1))
    assert staged.variant([1]) is (variant if variant is Variant.GREEDY else Variant.HOST)


def test_the_variant_follows_the_slots_requests() -> None:
    state = make_state(100, kernels=DRAWING)
    state.add(0, Sequence(SamplingParams(), [1], 0).as_new(0))
    assert state.variant([0]) is Variant.RANDOM
    state.remove(0)
    state.add(0, Sequence(SamplingParams(temperature=0.0), [1], 0).as_new(0))
    assert state.variant([0]) is Variant.GREEDY


def test_a_request_past_its_min_tokens_is_edited_no_more() -> None:
    state = make_state(100, kernels=DRAWING)
    params = SamplingParams(min_tokens=3, stop_token_ids=[7])
    state.add(2, Sequence(params, [1], 0).as_new(2))
    state.flush()
    row = state.tables.features[2].clone()
    for _ in range(3):
        assert state.variant([2]) is Variant.EDITED
        state.advance([2])
    assert state.variant([2]) is Variant.RANDOM
    state.flush()
    assert row[Feature.MIN_TOKENS] >= 0
    assert state.tables.features[2, Feature.MIN_TOKENS] == -1


def test_tables_stay_where_graphs_have_found_them() -> None:
    """They move when a feature is first used, not with the number of its users."""
    state = make_state(100, num_slots=32, kernels=DRAWING)
    empty = state.tables
    assert state.tables is empty
    state.add(0, Sequence(EVERYTHING, [1, 2], 0).as_new(0))
    state.flush()
    first = state.tables
    assert first is not empty
    for slot in range(1, 31):
        state.add(slot, Sequence(EVERYTHING, [1, 2], slot).as_new(slot))
    state.flush()
    assert state.tables is first
    for slot in range(31):
        state.remove(slot)
    assert state.tables is first
    state.add(0, Sequence(EVERYTHING, [1, 2], 0).as_new(0))
    assert state.tables is first


def test_steps_of_the_same_slots_cost_the_host_no_tensor_call() -> None:
    state = make_state(100, num_slots=300, kernels=DRAWING)
    slots = list(range(256))
    for slot in slots:
        state.add(slot, Sequence(SamplingParams(top_p=0.9), [1], slot).as_new(slot))
    state.flush()
    assert state.variant(slots) is Variant.RANDOM
    state.params.random = None  # type: ignore[assignment] (nothing is looked up again)
    with _RefuseCalls():
        for _ in range(3):
            assert state.variant(list(slots)) is Variant.RANDOM
            assert state.tables is state.tables
            state.advance(slots)
            state.flush()


def test_warming_up_leaves_nothing() -> None:
    state = make_state(100, num_slots=8, kernels=DRAWING)
    state.add(3, Sequence(EVERYTHING, [1, 2], 0).as_new(3))
    state.flush()
    tables = state.tables
    before = tables.seen.clone()
    state.warm_up(torch.randn(1, 100))
    assert state.tables is tables
    assert torch.equal(tables.seen, before)
    make_state(100).warm_up(torch.full((1, 100), torch.nan))
