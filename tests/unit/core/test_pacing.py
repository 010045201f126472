"""Pacing on simulated devices: steps stay below the target, prompts don't starve."""

from __future__ import annotations

import random
from collections import deque

import pytest

from octavo.core.pacing import (
    FIRST_GUESS_TOKENS,
    FLOOR_TOKENS,
    GRANULARITY,
    StepPacer,
    StepTimes,
    Unpaced,
)
from octavo.core.scheduler import Scheduler
from octavo.types.runner_output import ModelRunnerOutput
from unit.core.simulated_executor import kv_config, make_driver, make_request

TARGET = 0.05
# Qwen3-8B on an H200: 1,024 tokens of prompts take 26 ms, 8,192 take 215, 64 decode rows 6.
FIXED, PER_PROMPT, PER_ROW = 4e-3, 25e-6, 30e-6


class Device:
    """Computes one step after the other, each in fixed + prompt * tokens + row * rows seconds."""

    def __init__(self, fixed=FIXED, prompt=PER_PROMPT, row=PER_ROW, noise=0.0, seed=0):
        self.now = 0.0
        self.idle_from = 0.0
        self.costs = fixed, prompt, row
        self.noise = noise
        self.rng = random.Random(seed)

    def clock(self):
        return self.now

    def launch(self, num_prompt, num_decode):
        """Returns when the step will be done."""
        fixed, prompt, row = self.costs
        seconds = fixed + prompt * num_prompt + row * num_decode
        seconds *= 1.0 + self.rng.gauss(0.0, self.noise)
        self.idle_from = max(self.idle_from, self.now) + seconds
        return self.idle_from


def run_steps(pacer, device, steps, depth=2):
    """steps: pairs (prompt tokens or None: up to the limit, decode tokens); returns the prompts."""
    in_flight, taken = deque(), []
    for num_prompt, num_decode in steps:
        if num_prompt is None:
            num_prompt = pacer.limit(num_decode)
        taken.append(num_prompt)
        pacer.launched(num_prompt, num_decode)
        in_flight.append(device.launch(num_prompt, num_decode))
        if len(in_flight) == depth:
            device.now = in_flight.popleft()
            pacer.finished()
    while in_flight:
        device.now = in_flight.popleft()
        pacer.finished()
    return taken


def expected_limit(device, num_decode, target=TARGET / 1.05):
    fixed, prompt, row = device.costs
    tokens = (target - fixed - row * num_decode) / prompt
    return int(tokens + num_decode) // GRANULARITY * GRANULARITY - num_decode


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("num_decode", [1, 64, 256])
def test_the_limit_is_what_fits_the_target(depth, num_decode):
    device = Device()
    pacer = StepPacer(TARGET, device.clock)
    run_steps(pacer, device, [(8192, 0), *[(None, num_decode)] * 60], depth)
    # An estimate a little off may cost one step of the granularity.
    wanted = expected_limit(device, num_decode)
    assert wanted - GRANULARITY <= pacer.limit(num_decode) <= wanted + GRANULARITY


def test_steps_with_their_decode_tokens_are_whole_multiples():
    device = Device()
    pacer = StepPacer(TARGET, device.clock)
    assert pacer.limit(64) == FIRST_GUESS_TOKENS - 64
    for num_decode in (1, 63, 64, 128, 200):
        run_steps(pacer, device, [(None, num_decode)] * 5)
        assert (pacer.limit(num_decode) + num_decode) % GRANULARITY == 0


def test_prompts_always_get_the_floor():
    device = Device(fixed=1.0)
    pacer = StepPacer(TARGET, device.clock)
    run_steps(pacer, device, [(None, 100)] * 20)
    assert FLOOR_TOKENS <= pacer.limit(100) < FLOOR_TOKENS + GRANULARITY


def test_the_cost_of_prompts_is_remembered_while_there_are_none():
    device = Device(noise=0.01)
    pacer = StepPacer(TARGET, device.clock)
    run_steps(pacer, device, [(None, 64)] * 40)
    before = pacer.limit(64)
    run_steps(pacer, device, [(0, 64)] * 5000)
    assert abs(pacer.limit(64) - before) <= 2 * GRANULARITY


def test_a_device_that_becomes_slower_is_followed():
    device = Device()
    pacer = StepPacer(TARGET, device.clock)
    run_steps(pacer, device, [(None, 64)] * 40)
    device.costs = FIXED, 2 * PER_PROMPT, PER_ROW
    run_steps(pacer, device, [(None, 64)] * 60)
    assert pacer.limit(64) <= expected_limit(device, 64) + GRANULARITY


def test_outliers_do_not_count_for_much():
    device = Device()
    pacer = StepPacer(TARGET, device.clock)
    run_steps(pacer, device, [(None, 64)] * 60)
    before = pacer.limit(64)
    for _ in range(3):
        device.idle_from += 2.0  # something else had the device, or the host slept
        run_steps(pacer, device, [(None, 64)] * 30)
    assert abs(pacer.limit(64) - before) <= 2 * GRANULARITY


def test_a_first_step_that_compiles_kernels():
    device = Device()
    pacer = StepPacer(TARGET, device.clock)
    device.idle_from = 3.0
    run_steps(pacer, device, [(8192, 0), *[(None, 64)] * 40])
    assert pacer.limit(64) >= expected_limit(device, 64) * 3 // 4


def test_one_prompt_is_enough_for_a_first_estimate():
    device = Device()
    pacer = StepPacer(TARGET, device.clock)
    run_steps(pacer, device, [(8192, 0)])
    wanted = expected_limit(device, 64)
    assert wanted * 3 // 4 <= pacer.limit(64) <= wanted * 5 // 4


def test_waiting_for_work_is_not_part_of_a_step():
    device = Device()
    pacer = StepPacer(TARGET, device.clock)
    for _ in range(40):
        run_steps(pacer, device, [(None, 64)])
        device.now += 5.0
    assert abs(pacer.limit(64) - expected_limit(device, 64)) <= GRANULARITY


def test_parts_of_the_time_are_found():
    times, rng = StepTimes(), random.Random(0)
    for _ in range(300):
        prompt, decode = rng.choice((0, 256, 1000, 4000)), rng.choice((1, 64, 200))
        seconds = FIXED + PER_PROMPT * prompt + PER_ROW * decode
        times.observe(prompt, decode, seconds * rng.gauss(1.0, 0.02))
    for prompt, decode in ((0, 100), (2000, 10), (500, 256)):
        seconds = FIXED + PER_PROMPT * prompt + PER_ROW * decode
        assert times.expect(prompt, decode) == pytest.approx(seconds, rel=0.05)
    assert 0.005 < times.spread < 0.05


def make_scheduler(pacer):
    return Scheduler(
        max_num_batched_tokens=8192,
        max_num_seqs=64,
        num_slots=128,
        max_model_len=1400,
        kv_cache_config=kv_config(64 * 350 + 1),
        max_concurrent_steps=2,
        enable_prefix_caching=False,
        pacer=pacer,
    )


def serve(device, pacer, *, num_streams=64, num_requests=200, prompt=1024, outputs=64):
    """`num_streams` streams, each with the next request when one ends; returns times and gaps.

    (seconds in all, sorted gaps between two tokens of a request, tokens of the steps)
    """
    scheduler = make_scheduler(pacer)
    names = iter(range(num_requests))
    last_token: dict[str, float] = {}
    gaps, sizes, in_flight = [], [], deque()

    def arrive():
        name = next(names, None)
        if name is not None:
            scheduler.add_request(make_request(str(name), prompt, outputs))

    for _ in range(num_streams):
        arrive()
    while scheduler.has_requests():
        step = scheduler.schedule()
        if step.slots:
            decode = sum(step.num_scheduled_tokens[: step.num_decode_rows])
            total = step.total_num_scheduled_tokens
            sizes.append((total - decode, decode))
            in_flight.append((step, device.launch(total - decode, decode)))
        if step.slots and len(in_flight) < 2:
            continue
        step, device.now = in_flight.popleft()
        tokens = [[8] if samples else [] for samples in step.samples]
        result = ModelRunnerOutput(step.step_id, tokens)
        for news in scheduler.update_from_output(step, result).values():
            for output in news.outputs:
                if output.request_id in last_token:
                    gaps.append(device.now - last_token[output.request_id])
                last_token[output.request_id] = device.now
                if output.finish_reason is not None:
                    arrive()
    return device.now, sorted(gaps), sizes


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_tokens_keep_coming_while_prompts_are_computed(noise):
    device = Device(noise=noise)
    _, gaps, sizes = serve(device, StepPacer(TARGET, device.clock))
    assert gaps[int(0.99 * len(gaps))] <= TARGET
    assert max(prompt for prompt, decode in sizes if not decode) == 8192  # nobody to wait
    paced = [prompt for prompt, decode in sizes if decode and prompt]
    assert min(paced[10:-20]) >= FLOOR_TOKENS


def test_what_pacing_costs():
    plain, paced = Device(), Device()
    unpaced_seconds, gaps, _ = serve(plain, None)
    assert gaps[int(0.99 * len(gaps))] > 2 * TARGET
    paced_seconds, _, _ = serve(paced, StepPacer(TARGET, paced.clock))
    # Each step has a fixed part, and there are more of them.
    assert paced_seconds <= 1.03 * unpaced_seconds


def test_off_is_the_schedule_of_before():
    def steps(**options):
        driver = make_driver(max_num_batched_tokens=48, depth=2, num_blocks=200, **options)
        for i in range(12):
            driver.add(make_request(f"r{i}", [i] * (10 + 11 * i), 9))
        driver.run()
        return [(s.slots, s.num_scheduled_tokens, s.num_computed_tokens) for s in driver.steps]

    assert steps() == steps(pacer=Unpaced())
    assert steps() != steps(pacer=Least())


class Least(Unpaced):
    """Prompts get one token of a step with decode rows."""

    def limit(self, num_decode_tokens):
        return 1


def test_with_the_least_that_is_possible_all_requests_end():
    driver = make_driver(max_num_batched_tokens=48, depth=2, num_blocks=200, pacer=Least())
    for i in range(12):
        driver.add(make_request(f"r{i}", [i] * (10 + 9 * i), 30))
    driver.run()
    for name in driver.requests:
        driver.check_result(name)
    mixed = [s for s in driver.steps if 0 < s.num_decode_rows < len(s.slots)]
    assert mixed
    assert all(sum(s.num_scheduled_tokens[s.num_decode_rows :]) == 1 for s in mixed)
