"""Start-up over made-up requests, which take the same path as real ones."""

from __future__ import annotations

import msgspec

from octavo.config.octavo_config import OctavoConfig
from octavo.platforms.interface import Platform
from octavo.types.sampling_params import SamplingParams
from octavo.utils.misc import cdiv
from octavo.worker.parts import Runner
from octavo.worker.step import StepPlan

# Tokens of each row of the steps that warm up a device, one for each kind of kernel shape. The last
# three are a prompt beside rows of one token, the first that a server does when it gets busy: all
# rows short, few rows in a step that no graph holds, and some more.
_WARM_UP_STEPS = {
    "cpu": ((2,),),
    "cuda": ((1,), (16,), (512,), (8, *[1] * 7), (1100, *[1] * 7), (64, *[1] * 31)),
}
# What takes most memory in sampling: every row's logits are cut by rank and by mass.
_COSTLY_SAMPLING = SamplingParams(temperature=1.0, top_k=100, top_p=0.9)


def run_dummy(runner: Runner, plan: StepPlan, platform: Platform) -> None:
    """Run one step over made-up requests and give their slots back."""
    try:
        runner.execute_model(plan)
        platform.synchronize()
    finally:
        runner.release(plan.work.slots)


def largest_steps(config: OctavoConfig) -> list[StepPlan]:
    """The steps that take most memory: one of all tokens, and one in which all requests sample."""
    num_tokens = config.scheduler.max_num_batched_tokens
    most_rows = min(config.scheduler.max_num_seqs, num_tokens)
    num_rows = max(cdiv(num_tokens, config.model.max_model_len), most_rows // 4)
    plans = [StepPlan.dummy(num_tokens, min(num_rows, most_rows))]
    if config.model.pooler is None:
        plans.append(decode_plan(most_rows, _COSTLY_SAMPLING))
    return plans


def decode_plan(num_rows: int, params: SamplingParams) -> StepPlan:
    """A step of one token per row, over made-up requests that sample in one way."""
    change = msgspec.structs.replace
    work = StepPlan.dummy(num_rows, num_rows).work
    new = [change(request, sampling_params=params) for request in work.new_requests]
    return StepPlan.of(change(work, new_requests=new, num_decode_rows=num_rows))


def run_largest_steps(runner: Runner, config: OctavoConfig, platform: Platform) -> None:
    """Have the allocator hold what the largest steps need, so that it shows in its figures."""
    runner.prepare()
    for plan in largest_steps(config):
        run_dummy(runner, plan, platform)


def free_memory(config: OctavoConfig, platform: Platform) -> int:
    """Bytes that this process may still take.

    gpu_memory_utilization limits what it takes in all; what others take can only lower it.
    """
    free, total = platform.memory()
    limit = round(total * config.cache.gpu_memory_utilization)
    return min(limit - platform.memory_use().total, free)


def warm_up_plans(config: OctavoConfig) -> list[StepPlan]:
    """Small steps, one for each kind of kernel shape."""
    limit = config.scheduler.max_num_batched_tokens
    most_rows = min(config.scheduler.max_num_seqs, limit)
    return [
        StepPlan.made_up([min(longest, limit - len(others)), *others])
        for longest, *others in _WARM_UP_STEPS[config.device.device_type]
        if len(others) < most_rows
    ]


def warm_up(runner: Runner, config: OctavoConfig, platform: Platform) -> None:
    """Run small steps, so that no request pays for compiling and first-use set-up."""
    for plan in warm_up_plans(config):
        run_dummy(runner, plan, platform)
