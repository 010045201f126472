from __future__ import annotations

import pytest

from octavo.types.request import MediaSpan
from unit.core.invariants import check_invariants
from unit.core.simulated_executor import (
    count_look_ups,
    full_spec,
    make_driver,
    make_request,
    sliding_spec,
)


def prompt(start, length):
    return [start * 1000 + i for i in range(length)]


def run(driver, request_id, tokens, max_tokens=2, **options):
    """Run a request to its end; returns its cached tokens."""
    driver.add(make_request(request_id, tokens, max_tokens, **options))
    driver.run()
    driver.check_result(request_id)
    return driver.received[request_id].num_cached_tokens


def test_same_salt_shares_others_do_not():
    driver = make_driver()
    five_blocks = prompt(1, 20)
    assert run(driver, "a1", five_blocks, cache_salt="A") == 0
    assert run(driver, "a2", five_blocks, cache_salt="A") == 16
    assert run(driver, "b", five_blocks, cache_salt="B") == 0
    assert run(driver, "none", five_blocks) == 0


def test_placeholders_share_only_what_stands_before_other_media():
    driver = make_driver()
    shown = [*prompt(1, 6), *[7] * 10, *prompt(2, 4)]
    assert run(driver, "a1", shown, media=(MediaSpan(6, 10, "A"),)) == 0
    assert run(driver, "a2", shown, media=(MediaSpan(6, 10, "A"),)) == 16
    assert run(driver, "b", shown, media=(MediaSpan(6, 10, "B"),)) == 4
    assert run(driver, "text", shown) == 4


def test_hits_start_at_the_granularity_that_is_reported():
    driver = make_driver(max_model_len=180)
    assert driver.scheduler.prefix_hit_granularity == 4
    for length in range(1, 20):
        shared = prompt(length, length)
        run(driver, f"first{length}", [*shared, 1])
        hit = run(driver, f"second{length}", [*shared, 2])
        assert hit == length // 4 * 4


def test_granularity_of_other_layouts():
    assert make_driver(enable_prefix_caching=False).scheduler.prefix_hit_granularity == 0
    mixed = make_driver(specs=(full_spec(4), sliding_spec(10, 8)))
    assert mixed.scheduler.prefix_hit_granularity == 8


def test_the_next_turn_of_a_chat_reuses_the_answer():
    driver = make_driver()
    run(driver, "turn1", prompt(1, 10), max_tokens=15)
    history = prompt(1, 10) + driver.tokens("turn1")
    # The last token of the answer was never an input, so it is not in the cache.
    assert run(driver, "turn2", [*history, 5, 6, 7]) == 24


def test_accounting_is_exact():
    driver = make_driver()
    run(driver, "a", prompt(1, 20))
    run(driver, "b", prompt(1, 30))
    run(driver, "no reader", prompt(1, 30), skip_reading_prefix_cache=True)
    stats = driver.scheduler.make_stats().prefix_cache
    assert (stats.requests, stats.queries, stats.hits) == (2, 50, 20)


def test_a_resumed_request_is_not_counted_again():
    driver = make_driver(num_blocks=26, max_model_len=100)
    driver.add(make_request("old", prompt(1, 8), 80))
    driver.add(make_request("young", prompt(2, 8), 80))
    driver.run()
    stats = driver.scheduler.make_stats()
    assert stats.num_preemptions > 0
    assert (stats.prefix_cache.requests, stats.prefix_cache.queries) == (2, 16)
    assert stats.prefix_cache.hits == 0
    assert driver.received["young"].num_cached_tokens == 0


def test_prompt_logprobs_compute_everything():
    driver = make_driver()
    run(driver, "a", prompt(1, 20))
    assert run(driver, "b", prompt(1, 20), prompt_logprobs=1) == 0


def test_reset():
    driver = make_driver()
    driver.add(make_request("a", prompt(1, 20), 3))
    driver.step()
    assert not driver.scheduler.reset_prefix_cache()
    driver.run()
    assert driver.scheduler.reset_prefix_cache()
    assert run(driver, "b", prompt(1, 20)) == 0


# Sharing what is being computed.


def test_requests_of_one_step_share_a_prefix():
    driver = make_driver(max_num_batched_tokens=200)
    for index in range(4):
        driver.add(make_request(f"r{index}", [*prompt(1, 40), index], 3))
    output = driver.launch()
    assert output.num_scheduled_tokens == [41, 1, 1, 1]
    tables = [new.block_ids[0][:10] for new in output.new_requests]
    assert tables.count(tables[0]) == 4
    driver.run()
    for index in range(4):
        driver.check_result(f"r{index}")


@pytest.mark.parametrize("depth", [1, 3])
def test_followers_wait_for_the_blocks_of_a_leader(depth):
    driver = make_driver(max_num_batched_tokens=16, depth=depth)
    for index in range(3):
        driver.add(make_request(f"r{index}", [*prompt(1, 80), index], 3))
    driver.run()
    computed = sum(
        count
        for step in driver.steps
        for count in step.num_scheduled_tokens[step.num_decode_rows :]
    )
    assert computed == 81 + 1 + 1
    for index in range(3):
        driver.check_result(f"r{index}")
        assert driver.received[f"r{index}"].num_cached_tokens == (80 if index else 0)


def test_a_follower_is_looked_up_once_to_wait_and_once_to_go_on():
    driver = make_driver(long_prefill_token_threshold=8)
    look_ups = count_look_ups(driver)
    for index in range(3):
        driver.add(make_request(f"r{index}", [*prompt(1, 80), index], 3))
    driver.run()
    assert sorted(look_ups) == ["r0", "r1", "r1", "r2", "r2"]


def test_strangers_do_not_wait_for_a_leader():
    driver = make_driver(max_num_batched_tokens=16)
    driver.add(make_request("leader", prompt(1, 80), 3))
    driver.add(make_request("follower", prompt(1, 80), 3))
    driver.add(make_request("stranger", prompt(2, 6), 3))
    output = driver.step()
    assert [new.request_id for new in output.new_requests] == ["leader", "stranger"]


def test_followers_go_on_where_prefixes_part():
    driver = make_driver(max_num_batched_tokens=16, long_prefill_token_threshold=8)
    driver.add(make_request("leader", prompt(1, 60), 3))
    driver.add(make_request("follower", prompt(1, 20) + prompt(2, 30), 3))
    driver.run()
    assert driver.received["follower"].num_cached_tokens == 20
    # It did not wait for all of the leader's prompt.
    assert driver.received["follower"].first_step < driver.received["leader"].first_step + 3


@pytest.mark.parametrize("end", ["abort", "fault"])
def test_a_follower_goes_on_when_the_leader_is_gone(end):
    driver = make_driver(max_num_batched_tokens=16)
    driver.add(make_request("leader", prompt(1, 80), 3))
    driver.add(make_request("follower", prompt(1, 80), 3))
    for _ in range(2):
        driver.step()
    if end == "abort":
        driver.abort("leader")
    else:
        driver.launch()
        driver.in_flight[-1][1].errors[0] = "NaN"
        driver.collect()
        assert driver.received["leader"].stop_reason == "NaN"
    check_invariants(driver.scheduler)
    driver.run()
    driver.check_result("follower")
    cached = driver.received["follower"].num_cached_tokens
    assert cached == (32 if end == "abort" else 0), "what a failed row computed is not reused"


def test_a_follower_of_a_preempted_leader_goes_on():
    driver = make_driver(num_blocks=30, max_model_len=112, max_num_batched_tokens=8)
    driver.add(make_request("decode", prompt(3, 4), 90))
    driver.step()
    driver.add(make_request("leader", prompt(1, 90), 3))
    driver.add(make_request("follower", prompt(1, 90), 3))
    driver.run()
    for name in ("decode", "leader", "follower"):
        driver.check_result(name)


def test_hybrid_layouts_free_what_leaves_the_window():
    long = prompt(1, 150)
    usage = {}
    for name, specs in {
        "full": (full_spec(), full_spec()),
        "hybrid": (full_spec(), sliding_spec(9)),
    }.items():
        driver = make_driver(specs=specs, num_blocks=150, max_num_batched_tokens=16)
        driver.add(make_request("a", long, 20))
        while not driver.tokens("a"):
            driver.step()
        usage[name] = driver.scheduler._kv.usage * 149
        driver.run()
        driver.check_result("a")
    assert round(usage["full"]) == 2 * 38
    assert usage["hybrid"] < 38 + 9


def test_hybrid_hits():
    driver = make_driver(specs=(full_spec(), sliding_spec(9)), num_blocks=200)
    run(driver, "a", prompt(1, 60))
    assert run(driver, "b", prompt(1, 60)) == 56
    assert run(driver, "c", [*prompt(1, 32), 5, 6]) == 32
