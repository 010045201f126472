"""Start-up over made-up requests, which take the same path as real ones."""

from __future__ import annotations

from octavo.config.octavo_config import OctavoConfig
from octavo.platforms.interface import Platform
from octavo.utils.misc import cdiv
from octavo.worker.parts import Runner
from octavo.worker.step import StepPlan

# Tokens of the steps that warm up a device: one for each kind of kernel shape.
_WARM_UP_TOKENS = {"cpu": (2,), "cuda": (1, 16, 512)}


def run_dummy(runner: Runner, num_tokens: int, num_rows: int) -> None:
    """Run one step over made-up requests and give their slots back."""
    plan = StepPlan.dummy(num_tokens, num_rows)
    runner.execute_model(plan).result()
    runner.release(plan.work.slots)


def free_after_largest_step(runner: Runner, config: OctavoConfig, platform: Platform) -> int:
    """Bytes that are left for the cache once the largest step has run.

    The allocator keeps what the step needed, so what the device says is free is free at the peak.
    gpu_memory_utilization limits what this process takes; what others take can only lower it.
    """
    num_tokens = config.scheduler.max_num_batched_tokens
    num_rows = min(
        config.scheduler.max_num_seqs,
        max(cdiv(num_tokens, config.model.max_model_len), config.scheduler.max_num_seqs // 4),
        num_tokens,
    )
    runner.prepare()
    run_dummy(runner, num_tokens, num_rows)
    platform.synchronize()
    free, total = platform.memory()
    limit = round(total * config.cache.gpu_memory_utilization)
    return min(limit - platform.held_memory(), free)


def warm_up(runner: Runner, config: OctavoConfig) -> None:
    """Run small steps, so that no request pays for compiling and first-use set-up."""
    for num_tokens in _WARM_UP_TOKENS[config.device.device_type]:
        run_dummy(runner, min(num_tokens, config.scheduler.max_num_batched_tokens), 1)
