"""Random workloads on a simulated device: tokens equal a loop over each request alone."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from itertools import chain

import pytest

from octavo.core import admission
from octavo.core.kv.planning import request_blocks, tokens_ahead
from octavo.types.engine_output import FinishReason
from octavo.types.request import EngineCoreRequest
from unit.core.invariants import check_invariants
from unit.core.simulated_executor import (
    VOCAB_SIZE,
    Driver,
    expected_output,
    full_spec,
    kv_config,
    make_driver,
    make_request,
    sliding_spec,
)

LAYOUTS = {
    "full": (full_spec(4),),
    "sliding": (sliding_spec(9, 4),),
    "hybrid": (full_spec(4), sliding_spec(6, 4), sliding_spec(13, 4)),
    "mixed sizes": (full_spec(4), sliding_spec(10, 8)),
}
MAX_MODEL_LEN = 96


@dataclass
class Workload:
    """Arrivals and interruptions, all from one generator of random numbers."""

    rng: random.Random
    driver: Driver
    prefixes: list[list[int]]
    long_outputs: bool  # short prompts that grow: what makes preemption likely
    num_requests: int = 0
    broken: set[str] = field(default_factory=set)

    def new_request(self) -> EngineCoreRequest:
        rng = self.rng
        prefix = rng.choice([[], *self.prefixes])
        length = rng.choice((1, 2, 5) if self.long_outputs else (1, 2, 5, 9, 16, 30, 45))
        tail = [rng.randrange(VOCAB_SIZE) for _ in range(length)]
        prompt = (prefix + tail)[: MAX_MODEL_LEN - 2]
        if prefix and rng.random() < 0.1:
            prompt = prefix  # an exact repetition
        outputs = (50, 70) if self.long_outputs else (0, 1, 2, 7, 20, 40)
        max_tokens = min(rng.choice(outputs), MAX_MODEL_LEN - len(prompt))
        options: dict[str, object] = {}
        if rng.random() < 0.15:
            options["prompt_logprobs"] = 1
        if rng.random() < 0.1:
            options["skip_reading_prefix_cache"] = True
        if rng.random() < 0.2:
            options["stop_token_ids"] = [3, 11]
        if rng.random() < 0.2:
            options["min_tokens"] = min(5, max_tokens)
        self.num_requests += 1
        return make_request(
            f"r{self.num_requests}",
            prompt,
            max_tokens,
            seed=rng.choice((0, 0, 0, rng.randrange(1 << 20))),
            priority=rng.choice((0, 0, 1, -1)),
            arrival_time=float(self.num_requests),
            cache_salt=rng.choice((None, None, None, "a", "b")),
            client_index=rng.choice((0, 1)),
            eos=not self.long_outputs and rng.random() < 0.7,
            ignore_eos=rng.random() < 0.2,
            **options,
        )

    def interrupt(self) -> None:
        """End, or break, some unfinished request."""
        scheduler = self.driver.scheduler
        if not scheduler._requests:
            return
        request_id = self.rng.choice(list(scheduler._requests))
        known = len(self.driver.tokens(request_id))
        kind = self.rng.random()
        if kind < 0.5:
            self.driver.abort(request_id)
        elif kind < 0.8 and known:
            self.driver.finish(request_id, self.rng.randint(1, known))
        else:
            self.broken.add(request_id)
            self.driver.executor.faults[request_id] = self.rng.choice(("NaN", -1, VOCAB_SIZE))


def run_workload(seed: int, num_turns: int) -> Driver:
    """Random configuration, arrivals and interruptions; ends with everything finished."""
    rng = random.Random(seed)
    layout = rng.choice(list(LAYOUTS.values()))
    depth = rng.randint(1, 4)
    num_drafts = rng.choice((0, 0, 1, 3))
    budget = rng.choice((8, 16, 48, 200))
    ahead = tokens_ahead(budget, depth, num_drafts)
    just_enough = 1 + request_blocks(kv_config(1, *layout), MAX_MODEL_LEN, ahead)
    driver = make_driver(
        specs=layout,
        # From just enough for the longest request to plenty.
        num_blocks=just_enough + rng.choice((0, 0, 3, 20, 200)),
        max_num_batched_tokens=budget,
        max_num_seqs=rng.choice((1, 3, 6, 12)),
        num_slots=rng.choice((12, 24)),
        max_model_len=MAX_MODEL_LEN,
        depth=depth,
        num_drafts=num_drafts,
        draft_accuracy=rng.choice((0.0, 0.5, 0.9, 1.0)),
        seed=seed,
        policy=rng.choice(("fcfs", "priority")),
        long_prefill_token_threshold=rng.choice((0, 0, 7)),
        enable_chunked_prefill=budget < MAX_MODEL_LEN or rng.random() < 0.7,
        enable_prefix_caching=rng.random() < 0.8,
        hash_algo=rng.choice(("sha256", "xxhash")),
        log_stats=rng.random() < 0.5,
    )
    # Made of the same parts in different orders, so that equal blocks follow different ones.
    parts = [[rng.randrange(VOCAB_SIZE) for _ in range(8)] for _ in range(3)]
    prefixes = [[*chain(*rng.choices(parts, k=k))] for k in (1, 2, 3, 3, 5)]
    workload = Workload(rng, driver, prefixes, long_outputs=rng.random() < 0.4)
    arrival_rate = rng.choice((0.1, 0.5, 1.5))
    turns = work = 0  # work: steps of one request after the other, nothing in parallel
    while turns < num_turns or driver.scheduler.has_requests():
        turns += 1
        assert turns <= num_turns + 8 * work, "requests starve"
        if turns < num_turns:
            for _ in range(int(rng.expovariate(1 / arrival_rate) + 0.3)):
                request = workload.new_request()
                driver.add(request)
                work += 2 + request.max_tokens + len(request.token_ids) // 7
            if rng.random() < 0.1:
                workload.interrupt()
        work += check_turn(driver, rng, can_force=not num_drafts)
    for request_id in driver.requests:
        check_end(workload, request_id)
    assert driver.scheduler._kv.num_free_blocks == driver.executor.config.num_blocks - 1
    assert driver.scheduler.reset_prefix_cache()
    check_invariants(driver.scheduler)
    return driver


def check_turn(driver: Driver, rng: random.Random, can_force: bool) -> int:
    """Launch or collect at random; the books are in order after each.

    With `can_force`, what rows will sample is told beforehand now and then, or has to be sampled
    again; returns how often.
    """
    num_retries = 0
    scheduler = driver.scheduler
    may_launch = len(driver.in_flight) < driver.depth
    launched = may_launch and rng.random() < 0.7
    if launched:
        output = driver.launch()
        assert output.total_num_scheduled_tokens <= scheduler._limits.max_num_batched_tokens
        assert len(output.slots) <= scheduler._limits.max_running
        if can_force and output.slots and rng.random() < 0.3:
            driver.force(output, rng.randrange(len(output.slots)), rng.choice((2, 3, 9, 40)))
        check_invariants(scheduler)
        # Without results to wait for, something must be going on.
        assert output.slots or driver.in_flight or not scheduler.has_unfinished_requests()
    if driver.in_flight and (not launched or not output.slots):
        if can_force and rng.random() < 0.1:
            num_retries += driver.retry(rng.randrange(len(driver.in_flight[0][0].slots)))
        driver.collect()
        check_invariants(scheduler)
    for request in scheduler._requests.values():
        check_preemptions(request.num_preemptions)
    return num_retries


def check_preemptions(num_preemptions: int) -> None:
    """A resumed request gets room for more tokens each time, so preemptions are few."""
    longest = MAX_MODEL_LEN / admission.ROOM_TOKENS
    limit = 1 + max(math.ceil(math.log(longest, admission.ROOM_GROWTH)), 0)
    assert num_preemptions <= limit


def check_end(workload: Workload, request_id: str) -> None:
    driver = workload.driver
    received = driver.received[request_id]
    request = driver.requests[request_id]
    tokens, _ = expected_output(request)
    assert received.tokens == tokens[: len(received.tokens)]
    if request_id in driver.ended:
        return
    if received.finish_reason is FinishReason.ERROR:
        assert received.stop_reason
        assert request_id in workload.broken
        return
    driver.check_result(request_id)


@pytest.mark.parametrize("seed", range(40))
def test_random_workload(seed):
    run_workload(seed, num_turns=40)


@pytest.mark.parametrize("seed", range(15))
def test_random_workload_with_little_room_for_resumed_requests(seed, monkeypatch):
    monkeypatch.setattr(admission, "ROOM_TOKENS", 2)
    monkeypatch.setattr(admission, "ROOM_GROWTH", 2)
    run_workload(1000 + seed, num_turns=40)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_hundred_thousand_steps():
    num_steps = seed = 0
    while num_steps < 100_000:
        seed += 1
        num_steps += len(run_workload(10_000 + seed, num_turns=300).steps)
