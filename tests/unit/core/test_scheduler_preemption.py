from __future__ import annotations

import pytest

from octavo.core.request import RequestStatus
from octavo.types.engine_output import EventType
from unit.core.invariants import check_invariants
from unit.core.simulated_executor import make_driver, make_request


def prompt(start, length):
    return [start * 1000 + i for i in range(length)]


def status(driver, request_id):
    return driver.scheduler._requests[request_id].status


def step_until_preemption(driver):
    for _ in range(200):
        output = driver.step()
        check_invariants(driver.scheduler)
        if driver.scheduler._counters.num_preemptions:
            return output
    raise AssertionError("nobody was preempted")


def two_that_outgrow_the_cache(**options):
    """Requests "old" and "young", each of which fits alone."""
    priorities = options.pop("priorities", (0, 0))
    driver = make_driver(num_blocks=26, max_model_len=100, **options)
    driver.add(make_request("old", prompt(1, 8), 80, priority=priorities[0], arrival_time=1.0))
    driver.add(make_request("young", prompt(2, 8), 80, priority=priorities[1], arrival_time=2.0))
    return driver


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_tokens_are_the_same_as_without_pressure(depth, policy):
    driver = two_that_outgrow_the_cache(depth=depth, policy=policy)
    driver.run()
    assert driver.scheduler.make_stats().num_preemptions > 0
    driver.check_result("old")
    driver.check_result("young")


def test_the_victim_of_fcfs_is_the_last_one():
    driver = two_that_outgrow_the_cache()
    step_until_preemption(driver)
    assert status(driver, "young") is RequestStatus.PREEMPTED
    assert status(driver, "old") is RequestStatus.RUNNING


def test_the_victim_of_priority_is_the_least_urgent():
    driver = two_that_outgrow_the_cache(policy="priority", priorities=(5, 0))
    step_until_preemption(driver)
    assert status(driver, "old") is RequestStatus.PREEMPTED
    assert status(driver, "young") is RequestStatus.RUNNING


def test_equal_priority_the_later_arrival_is_the_victim():
    driver = two_that_outgrow_the_cache(policy="priority")
    step_until_preemption(driver)
    assert status(driver, "young") is RequestStatus.PREEMPTED


@pytest.mark.parametrize("depth", [1, 2])
def test_a_victim_scheduled_in_the_same_step_gives_its_row_back(depth):
    driver = make_driver(num_blocks=26, max_model_len=100, policy="priority", depth=depth)
    driver.add(make_request("a", prompt(1, 8), 80, priority=5))
    for _ in range(2):
        driver.step()
    # One token further on, so that b needs a block when a does not.
    driver.add(make_request("b", prompt(2, 8), 80, priority=0))
    (slot,) = driver.executor.table
    output = step_until_preemption(driver)
    assert status(driver, "a") is RequestStatus.PREEMPTED
    assert slot not in output.slots
    assert output.total_num_scheduled_tokens == len(output.slots) == 1
    assert not [blocks for blocks in output.new_blocks if blocks.slot == slot]
    driver.run()
    driver.check_result("a")
    driver.check_result("b")


def test_the_tokens_of_a_row_given_back_can_be_used_by_a_prefill():
    driver = make_driver(
        num_blocks=28,
        max_model_len=100,
        max_num_batched_tokens=3,
        max_num_seqs=3,
        policy="priority",
    )
    driver.add(make_request("victim", prompt(1, 6), 80, priority=9))
    for _ in range(4):
        driver.step()
    driver.add(make_request("urgent", prompt(2, 6), 80, priority=0))
    while driver.scheduler._kv.num_free_blocks > 7:
        driver.step()
    driver.add(make_request("prefill", prompt(3, 13), 10, priority=1))
    output = step_until_preemption(driver)
    assert output.total_num_scheduled_tokens == 3, "one decode and two tokens of the prefill"
    assert output.num_decode_rows == 1
    driver.run()
    for name in ("victim", "urgent", "prefill"):
        driver.check_result(name)


def test_a_step_that_preempts_admits_nobody():
    driver = two_that_outgrow_the_cache()
    while driver.scheduler._kv.num_free_blocks > 1:
        driver.step()
    driver.add(make_request("new", prompt(3, 2), 2))
    output = step_until_preemption(driver)
    assert not output.new_requests


def test_a_resumed_request_comes_before_later_ones():
    driver = two_that_outgrow_the_cache()
    step_until_preemption(driver)
    driver.add(make_request("new", prompt(3, 8), 2))
    assert [r.request_id for r in driver.scheduler._waiting] == ["young", "new"]


def test_results_in_flight_of_a_victim_are_dropped():
    driver = two_that_outgrow_the_cache(depth=3)
    for _ in range(200):
        driver.launch()
        if driver.scheduler._counters.num_preemptions:
            break
        if len(driver.in_flight) == 3:
            driver.collect()
    known = len(driver.tokens("young"))
    assert len(driver.in_flight) >= 2
    while driver.in_flight:
        driver.collect()
    assert len(driver.tokens("young")) == known
    driver.run()
    driver.check_result("young")


def test_the_slot_of_a_victim_is_free_after_the_last_step_that_has_it():
    driver = two_that_outgrow_the_cache(depth=3)
    freed = []
    for _ in range(200):
        output = driver.launch()
        freed.append((output.step_id, list(output.freed_slots)))
        check_invariants(driver.scheduler)
        if driver.scheduler._counters.num_preemptions:
            break
        if len(driver.in_flight) == 3:
            driver.collect()
    last_use = max(step.step_id for step in driver.steps if 1 in step.slots)
    assert last_use < driver.steps[-1].step_id
    while not output.freed_slots:
        done = driver.in_flight[0][0].step_id
        driver.collect()
        output = driver.launch()
    assert done == last_use


def test_events_tell_of_preemption():
    driver = two_that_outgrow_the_cache()
    seen = []
    original = driver._receive

    def receive(client, item, step_id):
        if item.request_id == "young":
            seen.extend(event.type for event in item.events or [])
        original(client, item, step_id)

    driver._receive = receive
    driver.run()
    assert seen == [
        EventType.QUEUED,
        EventType.SCHEDULED,
        EventType.PREEMPTED,
        EventType.SCHEDULED,
    ]


@pytest.mark.parametrize("depth", [1, 2])
def test_prompt_logprobs_are_told_once(depth):
    """The second request is preempted half-way through its prompt."""
    driver = make_driver(num_blocks=26, max_model_len=100, max_num_batched_tokens=3, depth=depth)
    driver.add(make_request("old", prompt(1, 8), 80))
    while driver.scheduler._kv.num_free_blocks > 12:
        driver.step()
    driver.add(make_request("young", prompt(2, 40), 10, prompt_logprobs=1))
    step_until_preemption(driver)
    told = len(driver.received["young"].prompt_logprob_tokens)
    assert 0 < told < 40
    driver.run()
    driver.check_result("young")


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_forty_requests_in_a_cache_for_three(depth, policy):
    driver = make_driver(
        num_blocks=1 + 3 * 28, max_num_seqs=64, max_model_len=112, depth=depth, policy=policy
    )
    for index in range(40):
        driver.add(make_request(f"r{index}", prompt(index, 10), 100, arrival_time=float(index)))
    requests = list(driver.scheduler._requests.values())
    for _ in range(4000):
        if not driver.scheduler.has_requests():
            break
        output = driver.step()
        assert output.slots or driver.in_flight or driver.scheduler._counters.num_preemptions
    for index in range(40):
        driver.check_result(f"r{index}")
    assert max(request.num_preemptions for request in requests) <= 2
    # Every step makes progress: far fewer steps than one request after the other.
    assert len(driver.steps) < 40 * 100 / 2


def test_a_request_that_was_preempted_comes_back_with_room():
    driver = two_that_outgrow_the_cache()
    step_until_preemption(driver)
    request = driver.scheduler._requests["young"]
    while request.status is RequestStatus.PREEMPTED:
        driver.step()
    assert request.reserve_until == request.max_computed
    assert request.protected
    driver.run()
    assert request.num_preemptions == 1


def test_finishing_a_preempted_request():
    driver = two_that_outgrow_the_cache(depth=2)
    step_until_preemption(driver)
    driver.finish("young", 1)
    check_invariants(driver.scheduler)
    driver.run()
    driver.check_result("old")
