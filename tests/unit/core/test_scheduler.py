from __future__ import annotations

import pytest

from octavo.core import request_queue
from octavo.core.scheduler import Scheduler
from octavo.types.engine_output import FinishReason
from octavo.types.errors import ConfigError, RequestError
from octavo.types.runner_output import ModelRunnerOutput
from unit.core.invariants import check_invariants
from unit.core.simulated_executor import count_look_ups, kv_config, make_driver, make_request


def rows(driver, output):
    """request id -> tokens scheduled in this step."""
    names = [driver.executor.table[slot].request_id for slot in output.slots]
    return dict(zip(names, output.num_scheduled_tokens, strict=True))


def prompt(start, length):
    """Tokens that share no prefix with another start."""
    return [start * 1000 + i for i in range(length)]


# The token budget and chunks.


def test_one_request_from_prompt_to_end():
    driver = make_driver()
    driver.add(make_request("a", 10, 3))
    first = driver.step()
    assert (first.slots, first.num_scheduled_tokens, first.samples) == ([0], [10], [True])
    assert first.num_decode_rows == 0
    assert first.new_requests[0].token_ids == list(range(100, 110))
    second = driver.step()
    assert (second.num_computed_tokens, second.num_scheduled_tokens) == ([10], [1])
    assert (second.num_decode_rows, second.samples, second.new_requests) == (1, [True], [])
    driver.run()
    driver.check_result("a")
    assert driver.scheduler.get_request_counts() == (0, 0)


@pytest.mark.parametrize("long", [100, 10_000])
def test_a_long_prompt_is_computed_in_as_many_steps_as_its_tokens_fill(long):
    driver = make_driver(max_num_batched_tokens=64, num_blocks=3000, max_model_len=11_000)
    driver.add(make_request("a", long, 1))
    driver.run()
    assert len(driver.steps) == -(-long // 64)
    assert [step.samples for step in driver.steps] == [[False]] * (len(driver.steps) - 1) + [[True]]
    driver.check_result("a")


def test_decodes_go_on_beside_a_long_prefill():
    driver = make_driver(max_num_batched_tokens=16)
    driver.add(make_request("short", prompt(1, 4), 40))
    driver.step()
    driver.add(make_request("long", prompt(2, 100), 1))
    while not driver.tokens("long"):
        output = driver.step()
        assert rows(driver, output) == {"short": 1, "long": min(15, 100 - output_start(output))}
    assert len(driver.tokens("short")) == 1 + 7  # ceil(100 / 15) steps


def output_start(output):
    return output.num_computed_tokens[-1]


def test_decode_rows_come_first_whatever_the_order_of_arrival():
    driver = make_driver(max_num_batched_tokens=8)
    driver.add(make_request("long", prompt(1, 60), 4))
    driver.step()
    driver.add(make_request("short", prompt(2, 3), 4))
    driver.step()
    output = driver.step()
    assert output.num_decode_rows == 1
    assert list(rows(driver, output)) == ["short", "long"]
    driver.run()


def test_the_budget_is_shared_by_running_and_waiting():
    driver = make_driver(max_num_batched_tokens=20)
    for index in range(4):
        driver.add(make_request(f"r{index}", prompt(index, 8), 4))
    assert rows(driver, driver.step()) == {"r0": 8, "r1": 8, "r2": 4}
    assert rows(driver, driver.step()) == {"r0": 1, "r1": 1, "r2": 4, "r3": 8}


def test_long_prefill_threshold():
    driver = make_driver(max_num_batched_tokens=32, long_prefill_token_threshold=10)
    driver.add(make_request("a", prompt(1, 25), 2))
    driver.add(make_request("b", prompt(2, 25), 2))
    assert rows(driver, driver.step()) == {"a": 10, "b": 10}
    assert rows(driver, driver.step()) == {"a": 10, "b": 10}
    assert rows(driver, driver.step()) == {"a": 5, "b": 5}
    driver.run()
    driver.check_result("a")


def test_max_num_seqs():
    driver = make_driver(max_num_seqs=2)
    for index in range(5):
        driver.add(make_request(f"r{index}", prompt(index, 4), 3))
    driver.step()
    assert driver.scheduler.get_request_counts() == (2, 3)
    assert (driver.scheduler.num_running, driver.scheduler.num_waiting) == (2, 3)
    driver.run()
    assert [driver.received[f"r{i}"].first_step for i in range(5)] == [0, 0, 3, 3, 6]


def test_more_sequences_than_tokens_per_step():
    driver = make_driver(max_num_seqs=8, max_num_batched_tokens=3)
    for index in range(6):
        driver.add(make_request(f"r{index}", prompt(index, 5), 6))
    driver.run()
    for index in range(6):
        driver.check_result(f"r{index}")


def test_a_short_request_gets_in_and_out_during_a_long_generation():
    driver = make_driver()
    driver.add(make_request("long", prompt(1, 4), 60))
    for _ in range(5):
        driver.step()
    driver.add(make_request("short", prompt(2, 4), 1))
    driver.step()
    assert driver.received["short"].finish_reason is FinishReason.LENGTH
    assert driver.received["long"].finish_reason is None


# Prompts longer than a step.


def test_a_prompt_longer_than_the_budget_gives_the_same_tokens():
    request = make_request("a", 100, 5)
    for budget in (32, 1000):
        driver = make_driver(max_num_batched_tokens=budget)
        driver.add(request)
        driver.run()
        driver.check_result("a")


def test_without_chunks_such_a_prompt_is_refused():
    driver = make_driver(max_num_batched_tokens=32, enable_chunked_prefill=False)
    with pytest.raises(RequestError, match="chunked prefill is off"):
        driver.scheduler.add_request(make_request("a", 100, 5))
    assert not driver.scheduler.has_requests()
    driver.add(make_request("b", 32, 5))
    driver.run()
    driver.check_result("b")


def test_without_chunks_a_prompt_waits_for_a_step_that_holds_it_all():
    driver = make_driver(max_num_batched_tokens=32, enable_chunked_prefill=False)
    driver.add(make_request("a", prompt(1, 20), 3))
    driver.add(make_request("b", prompt(2, 20), 3))
    assert rows(driver, driver.step()) == {"a": 20}
    assert rows(driver, driver.step()) == {"a": 1, "b": 20}


def test_short_prompts_do_not_wait_for_a_very_long_one():
    driver = make_driver(max_num_batched_tokens=32, num_blocks=600, max_model_len=1700)
    driver.add(make_request("long", prompt(1, 32 * 50), 2))
    driver.step()
    for index in range(5):
        driver.add(make_request(f"short{index}", prompt(2 + index, 6), 8))
    arrival = len(driver.steps)
    driver.run()
    for index in range(5):
        assert driver.received[f"short{index}"].first_step - arrival <= 3
    # The long one had at least half of every step that it shared.
    assert driver.received["long"].first_step <= 50 + 10
    driver.check_result("long")


def test_a_long_prefill_takes_what_short_ones_leave():
    driver = make_driver(max_num_batched_tokens=32)
    driver.add(make_request("long", prompt(1, 150), 2))
    driver.add(make_request("short", prompt(2, 10), 2))
    driver.add(make_request("too long for the rest", prompt(3, 10), 2))
    assert rows(driver, driver.step()) == {"long": 22, "short": 10}


def test_long_prompts_are_computed_one_after_the_other():
    driver = make_driver(max_num_batched_tokens=32)
    driver.add(make_request("first", prompt(1, 90), 1))
    driver.add(make_request("second", prompt(2, 90), 1))
    driver.run()
    assert driver.received["first"].first_step == 2
    assert driver.received["second"].first_step == 5


def test_long_prompts_in_the_queue_are_looked_up_once_while_one_is_computed():
    driver = make_driver(max_num_batched_tokens=32, num_blocks=400, max_model_len=400)
    for index in range(4):
        driver.add(make_request(f"r{index}", prompt(index, 300), 1))
    look_ups = count_look_ups(driver)
    for _ in range(8):
        driver.step()
    assert look_ups == ["r0", "r1", "r2", "r3"]


# Looking past requests that do not fit.


def fill(driver, tokens):
    """A request that occupies blocks for so many tokens and goes on for long."""
    driver.add(make_request("filler", prompt(99, tokens), 90))
    driver.step()


def test_a_request_that_fits_passes_one_that_does_not():
    driver = make_driver(num_blocks=51, max_num_batched_tokens=400)
    fill(driver, 100)
    driver.add(make_request("large", prompt(1, 120), 2))
    driver.add(make_request("small", prompt(2, 4), 2))
    assert set(rows(driver, driver.step())) == {"filler", "small"}
    driver.run()
    driver.check_result("large")


def test_only_so_many_pass(monkeypatch):
    monkeypatch.setattr(request_queue, "MAX_BYPASSES", 3)
    driver = make_driver(num_blocks=51, max_num_batched_tokens=400, max_num_seqs=4)
    fill(driver, 100)
    driver.add(make_request("large", prompt(1, 120), 2))
    for index in range(20):
        driver.add(make_request(f"small{index}", prompt(2 + index, 4), 2))
    driver.run()
    before = [
        index
        for index in range(20)
        if driver.received[f"small{index}"].first_step < driver.received["large"].first_step
    ]
    assert before == [0, 1, 2]


def test_a_full_cache_does_not_cost_a_look_up_per_waiting_request():
    driver = make_driver(num_blocks=51, max_num_batched_tokens=400)
    fill(driver, 100)
    for index in range(5):
        driver.add(make_request(f"large{index}", prompt(1 + index, 120), 2))
    driver.step()
    look_ups = count_look_ups(driver)
    for _ in range(10):
        driver.step()
    assert look_ups == []


# Leaving.


def test_max_tokens_zero_only_computes_the_prompt():
    driver = make_driver(max_num_batched_tokens=8)
    driver.add(make_request("a", 20, 0, prompt_logprobs=1))
    driver.run()
    assert len(driver.steps) == 3
    assert all(step.samples == [False] for step in driver.steps)
    driver.check_result("a")
    assert driver.received["a"].finish_reason is FinishReason.LENGTH


def test_the_models_length_limit():
    driver = make_driver(max_model_len=12)
    request = make_request("a", 10, 2)
    request.max_tokens = 50
    driver.add(request)
    driver.run()
    assert len(driver.tokens("a")) == 2
    assert driver.received["a"].finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_abort_while_waiting_running_and_in_flight(depth):
    driver = make_driver(max_num_seqs=2, depth=depth)
    for index in range(3):
        driver.add(make_request(f"r{index}", prompt(index, 9), 30))
    for _ in range(3):
        driver.step()
    driver.abort("r2", "r0", "unknown")
    check_invariants(driver.scheduler)
    assert driver.scheduler.get_request_counts() == (1, 0)
    driver.run()
    driver.check_result("r1")
    assert driver.received["r2"].num_outputs == 0
    assert driver.scheduler._kv.usage == 0


def test_abort_frees_blocks_at_once():
    driver = make_driver()
    driver.add(make_request("a", 40, 9))
    driver.step()
    driver.abort("a")
    assert driver.scheduler._kv.usage == 0
    assert not driver.scheduler.has_unfinished_requests()


class Recorder:
    """A resource that grants everything and remembers how requests left."""

    def __init__(self):
        self.released = []

    def want(self, request, num_tokens):
        return num_tokens

    def commit(self, request, num_tokens):
        pass

    def release(self, request):
        self.released.append((request.request_id, request.finish_reason))


def test_an_abort_during_the_last_step_is_an_abort():
    recorder = Recorder()
    driver = make_driver(resources=[recorder])
    driver.add(make_request("a", 5, 1))
    driver.launch()
    driver.abort("a")
    driver.collect()
    assert recorder.released == [("a", FinishReason.ABORT)]
    assert driver.received["a"].num_outputs == 0
    assert not driver.scheduler.has_requests()
    check_invariants(driver.scheduler)


@pytest.mark.parametrize("depth", [1, 3])
def test_a_finish_from_the_front_end(depth):
    recorder = Recorder()
    driver = make_driver(resources=[recorder], depth=depth)
    driver.add(make_request("a", 5, 30))
    while len(driver.tokens("a")) < 4:
        driver.step()
    request = driver.scheduler._requests["a"]
    driver.finish("a", 3)
    assert recorder.released == [("a", FinishReason.STOP)]
    assert request.num_output_tokens == 3
    driver.run()
    check_invariants(driver.scheduler)


def test_an_id_can_be_used_again_but_not_twice_at_once():
    driver = make_driver(depth=3)
    driver.add(make_request("a", 5, 30))
    with pytest.raises(RequestError, match="exists already"):
        driver.scheduler.add_request(make_request("a", 5, 30))
    for _ in range(2):
        driver.launch()
    driver.abort("a")
    driver.ended.clear()
    driver.add(make_request("a", 7, 4))
    driver.run()
    driver.check_result("a")


def test_token_ids_that_can_not_be_hashed_are_refused():
    driver = make_driver()
    with pytest.raises(RequestError, match="token id"):
        driver.scheduler.add_request(make_request("a", [5, -1, 5], 3))
    assert not driver.scheduler.has_requests()


def test_a_replayed_request_goes_on_where_it_was():
    whole = make_request("whole", 10, 8, seed=5)
    driver = make_driver()
    driver.add(whole)
    driver.run()
    produced = driver.tokens("whole")
    again = make_request("again", 10, 8, seed=5)
    again.token_ids += produced[:3]
    driver.add(again)
    driver.run()
    assert driver.tokens("again") == produced[3:]


# Resources.


class Gate:
    """A resource that a request has to wait for; then it allows few tokens at a time."""

    def __init__(self):
        self.open = False

    def want(self, request, num_tokens):
        return min(num_tokens, 3) if self.open else 0

    def commit(self, request, num_tokens):
        assert num_tokens <= 3

    def release(self, request):
        pass


def test_resources_can_defer_and_limit():
    gate = Gate()
    driver = make_driver(resources=[gate])
    driver.add(make_request("a", 8, 2))
    assert not driver.step().slots
    gate.open = True
    driver.run()
    assert [step.num_scheduled_tokens for step in driver.steps] == [[3], [3], [2], [1]]
    driver.check_result("a")


def test_waiting_for_a_resource_does_not_make_the_queue_wait(monkeypatch):
    monkeypatch.setattr(request_queue, "MAX_BYPASSES", 1)

    class OnlyB(Gate):
        def want(self, request, num_tokens):
            return num_tokens if request.request_id.startswith("b") or self.open else 0

        def commit(self, request, num_tokens):
            pass

    gate = OnlyB()
    driver = make_driver(resources=[gate])
    driver.add(make_request("a", prompt(1, 8), 2))
    for index in range(4):
        driver.add(make_request(f"b{index}", prompt(2 + index, 8), 2))
    driver.step()
    assert driver.scheduler.get_request_counts() == (4, 1)
    gate.open = True
    driver.run()
    driver.check_result("a")


# Construction, statistics, protocol errors.


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"policy": "random"}, r"scheduling_policy='random'.*fcfs.*priority"),
        ({"hash_algo": "md5"}, "prefix_caching_hash_algo"),
        ({"max_model_len": 397}, "max_model_len=397.*at most 396"),
        ({"max_num_seqs": 0}, "max_num_seqs=0"),
    ],
)
def test_wrong_options(changes, match):
    options = {
        "max_num_batched_tokens": 64,
        "max_num_seqs": 4,
        "num_slots": 8,
        "max_model_len": 200,
        "kv_cache_config": kv_config(100),
    }
    with pytest.raises(ConfigError, match=match):
        Scheduler(**options | changes)


def test_nothing_to_do():
    driver = make_driver()
    output = driver.scheduler.schedule()
    assert output.total_num_scheduled_tokens == 0
    empty = ModelRunnerOutput(step_id=output.step_id)
    assert driver.scheduler.update_from_output(output, empty) == {}
    assert not driver.scheduler.has_requests()


def test_results_must_come_in_order():
    driver = make_driver(depth=2)
    driver.add(make_request("a", 5, 9))
    driver.launch()
    driver.launch()
    _, (output, result) = driver.in_flight
    with pytest.raises(RuntimeError, match="oldest step in flight is 0"):
        driver.scheduler.update_from_output(output, result)


def test_statistics():
    driver = make_driver(max_num_seqs=1)
    driver.add(make_request("a", 10, 3))
    driver.add(make_request("b", prompt(1, 10), 3))
    driver.step()
    stats = driver.scheduler.make_stats()
    assert (stats.num_running, stats.num_waiting) == (1, 1)
    assert stats.num_scheduled_tokens == 10
    assert stats.kv_cache_usage == pytest.approx(3 / 99)
    assert (stats.prefix_cache.requests, stats.prefix_cache.queries) == (1, 10)
    driver.step()
    stats = driver.scheduler.make_stats()
    assert stats.num_scheduled_tokens == 1
    assert stats.prefix_cache.requests == 0
    assert make_driver(log_stats=False).scheduler.make_stats() is None
    assert make_driver(enable_prefix_caching=False).scheduler.make_stats().prefix_cache is None


def test_outputs_go_to_their_front_end():
    driver = make_driver()
    for client in (0, 1, 0):
        index = len(driver.requests)
        driver.add(make_request(f"r{index}", prompt(index, 5), 2, client_index=client))
    output = driver.scheduler.schedule()
    news = driver.scheduler.update_from_output(output, driver.executor.execute(output))
    ids = {client: [o.request_id for o in n.outputs] for client, n in news.items()}
    assert ids == {0: ["r0", "r2"], 1: ["r1"]}
    assert news[0].timestamp > 0
