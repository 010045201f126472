from __future__ import annotations

from octavo.core.request import Request
from octavo.core.step import Step
from octavo.types.scheduler_output import NewBlocks
from unit.core.simulated_executor import make_request


def make(name, slot):
    request = Request(make_request(name, 20), arrival_index=slot, max_model_len=100)
    request.start(slot, 0)
    request.block_ids = [[slot + 1]]
    return request


def decode(step, request, drafts=()):
    step.requests.append(request)
    step.slots.append(request.slot)
    step.num_computed_tokens.append(request.num_computed_tokens)
    step.num_scheduled_tokens.append(1 + len(drafts))
    step.drafts.append(list(drafts))
    step.budget -= 1 + len(drafts)


def test_prefill_rows():
    step = Step(4, 50)
    request = make("a", 2)
    request.num_computed_tokens = 3
    step.add_prefill(request, 10, samples=False)
    assert step.budget == 40
    assert (request.num_computed_tokens, request.last_step) == (13, 4)
    output = step.to_output([], [])
    assert (output.slots, output.num_computed_tokens, output.samples) == ([2], [3], [False])
    assert output.total_num_scheduled_tokens == 10


def test_a_decode_row_is_taken_back_with_its_tokens_and_drafts():
    step = Step(0, 50)
    first, second, third = (make(name, slot) for slot, name in enumerate("abc"))
    decode(step, first, [5])
    decode(step, second, [6, 7])
    decode(step, third, [8])
    step.take_back_decode(second)
    assert step.budget == 50 - 4
    output = step.to_output([], [])
    assert output.slots == [0, 2]
    assert output.draft_token_ids == {0: [5], 1: [8]}
    step.take_back_decode(second)
    assert step.budget == 46


def test_rows_without_drafts_are_left_out():
    step = Step(0, 50)
    for drafts, request in (([], make("a", 0)), ([5], make("b", 1))):
        decode(step, request, drafts)
    assert step.to_output([], []).draft_token_ids == {1: [5]}


def test_dropping_results():
    step = Step(0, 50)
    request = make("a", 0)
    decode(step, request)
    assert step.drop(request)
    assert step.requests == [None]
    assert not step.drop(request)


def test_new_requests_carry_snapshots_and_no_separate_blocks():
    step = Step(0, 50)
    old, new = make("old", 0), make("new", 1)
    step.admitted.append(new)
    output = step.to_output([7], [NewBlocks(0, 0, 1, [9]), NewBlocks(1, 0, 1, [8])])
    assert [blocks.slot for blocks in output.new_blocks] == [old.slot]
    assert output.freed_slots == [7]
    (data,) = output.new_requests
    new.token_ids.append(1)
    new.block_ids[0].append(5)
    assert len(data.token_ids) == 20
    assert data.block_ids == [[2]]
