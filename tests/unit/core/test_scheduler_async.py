from __future__ import annotations

import pytest

from octavo.types.scheduler_output import DEVICE_DRAFT
from unit.core.invariants import check_invariants
from unit.core.simulated_executor import expected_output, make_driver, make_request


def prompt(start, length):
    return [start * 1000 + i for i in range(length)]


def test_decodes_are_scheduled_before_their_input_is_known():
    driver = make_driver(depth=3)
    driver.add(make_request("a", 6, 10))
    outputs = [driver.launch() for _ in range(3)]
    assert [output.num_computed_tokens for output in outputs] == [[6 - 6], [6], [7]]
    assert driver.tokens("a") == []
    assert not driver.launch().slots, "no more steps than allowed"
    driver.run()
    driver.check_result("a")


def test_chunks_of_a_prompt_do_not_wait_for_results():
    driver = make_driver(depth=4, max_num_batched_tokens=8)
    driver.add(make_request("a", 20, 2))
    outputs = [driver.launch() for _ in range(4)]
    assert [output.num_computed_tokens for output in outputs] == [[0], [8], [16], [20]]
    assert [output.samples for output in outputs] == [[False], [False], [True], [True]]


@pytest.mark.parametrize("max_tokens", [0, 1, 2, 3])
def test_nothing_is_scheduled_past_max_tokens(max_tokens):
    driver = make_driver(depth=4)
    driver.add(make_request("a", 6, max_tokens))
    outputs = [driver.launch() for _ in range(4)]
    assert len([output for output in outputs if output.slots]) == max(max_tokens, 1)
    driver.run()
    driver.check_result("a")


def test_nothing_is_scheduled_past_the_models_length():
    driver = make_driver(depth=4, max_model_len=8)
    request = make_request("a", 6, 2)
    request.max_tokens = 30
    driver.add(request)
    outputs = [driver.launch() for _ in range(4)]
    assert len([output for output in outputs if output.slots]) == 2


def test_tokens_sampled_after_the_end_are_dropped():
    tokens, _ = expected_output(make_request("a", 6, 10))
    stop = tokens[3]
    driver = make_driver(depth=4)
    driver.add(make_request("a", 6, 10, stop_token_ids=[stop]))
    driver.run()
    driver.check_result("a")
    assert driver.tokens("a") == tokens[: tokens.index(stop) + 1]
    assert driver.received["a"].stop_reason == stop
    assert len(driver.steps) > len(driver.tokens("a"))


def test_a_slot_is_not_reused_while_a_step_has_it():
    driver = make_driver(depth=3, max_num_seqs=1, num_slots=1)
    driver.add(make_request("a", prompt(1, 6), 20))
    driver.add(make_request("b", prompt(2, 6), 3))
    for _ in range(3):
        driver.launch()
    driver.abort("a")
    driver.collect()
    assert not driver.launch().slots, "two steps in flight have the only slot"
    driver.collect()
    driver.collect()
    output = driver.launch()
    assert output.freed_slots == [0]
    assert [new.request_id for new in output.new_requests] == ["b"]
    driver.run()
    driver.check_result("b")


def test_a_freed_slot_is_reported_with_the_next_step_that_is_sent():
    driver = make_driver()
    driver.add(make_request("a", prompt(1, 6), 1))
    driver.step()
    assert driver.launch().freed_slots == []  # empty, so not sent
    driver.add(make_request("b", prompt(2, 6), 1))
    assert driver.launch().freed_slots == [0]


def test_has_requests_until_the_last_result_is_in():
    driver = make_driver(depth=2)
    driver.add(make_request("a", 6, 9))
    driver.launch()
    driver.abort("a")
    assert not driver.scheduler.has_unfinished_requests()
    assert driver.scheduler.has_requests()
    driver.collect()
    assert not driver.scheduler.has_requests()


# Drafts.


def test_drafts_from_the_host_when_nothing_is_in_flight():
    driver = make_driver(num_drafts=3, draft_accuracy=1.0)
    driver.add(make_request("a", 6, 12))
    driver.step()
    output = driver.step()
    tokens, _ = expected_output(driver.requests["a"])
    assert output.draft_token_ids == {0: tokens[1:4]}
    assert output.num_scheduled_tokens == [4]
    assert driver.tokens("a") == tokens[:5]
    driver.run()
    driver.check_result("a")
    assert len(driver.steps) == 4  # 1 + 4 + 4 + 3


def test_drafts_from_the_device_while_a_step_is_in_flight():
    driver = make_driver(num_drafts=2, draft_accuracy=1.0, depth=2)
    driver.add(make_request("a", 6, 12))
    driver.launch()
    output = driver.launch()
    assert output.draft_token_ids == {0: [DEVICE_DRAFT, DEVICE_DRAFT]}
    assert output.num_computed_tokens == [6]
    driver.run()
    driver.check_result("a")


def test_rejected_drafts_are_taken_back():
    driver = make_driver(num_drafts=3, draft_accuracy=0.0)
    driver.add(make_request("a", 6, 5))
    computed = []
    while driver.scheduler.has_requests():
        output = driver.step()
        computed += output.num_computed_tokens
        check_invariants(driver.scheduler)
    assert computed == [0, 6, 7, 8, 9]
    driver.check_result("a")
    stats = driver.scheduler.make_stats()
    assert (stats.num_draft_tokens, stats.num_accepted_tokens) == (3 + 2 + 1 + 0, 0)


def test_accepted_drafts_are_counted():
    driver = make_driver(num_drafts=3, draft_accuracy=1.0)
    driver.add(make_request("a", 6, 9))
    driver.run()
    stats = driver.scheduler.make_stats()
    assert (stats.num_draft_tokens, stats.num_accepted_tokens) == (6, 6)
    assert driver.scheduler.make_stats().num_draft_tokens == 0


def test_drafts_do_not_reach_past_the_length_limit():
    driver = make_driver(num_drafts=5, draft_accuracy=1.0, depth=2)
    driver.add(make_request("a", 6, 4))
    driver.run()
    driver.check_result("a")
    assert max(sum(step.num_scheduled_tokens) for step in driver.steps[1:]) == 3


def test_a_stop_among_accepted_drafts_cuts_the_rest():
    tokens, _ = expected_output(make_request("a", 6, 12))
    stop = tokens[2]
    driver = make_driver(num_drafts=5, draft_accuracy=1.0)
    driver.add(make_request("a", 6, 12, stop_token_ids=[stop]))
    driver.run()
    driver.check_result("a")
    assert driver.tokens("a")[-1] == stop


def test_blocks_are_there_for_what_a_draft_model_writes():
    driver = make_driver(num_drafts=3)
    driver.add(make_request("a", 8, 12))
    driver.launch()
    assert driver.scheduler._requests["a"].num_allocated_tokens == 12
