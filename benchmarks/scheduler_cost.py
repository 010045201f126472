"""Host cost of the scheduler: microseconds per running request-step and per admitted request.

    python benchmarks/scheduler_cost.py [--rows 256] [--prompt 1024] [--json FILE]

No device and no torch: results are made up, in the form a worker sends them. Targets: at most
4 us per running request and step (schedule + update) at 256 decode rows, at most 80 us per newly
admitted request with a prompt of 1024 tokens, hashing included.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
from collections import deque
from pathlib import Path

from octavo.core.scheduler import Scheduler
from octavo.types.kv_spec import FullAttentionSpec, KVCacheConfig, KVCacheGroup
from octavo.types.request import EngineCoreRequest
from octavo.types.runner_output import ModelRunnerOutput
from octavo.types.sampling_params import SamplingParams
from octavo.types.scheduler_output import SchedulerOutput

BLOCK_SIZE = 16
NUM_STEPS = 400
TARGET_ROW_US = 4.0
TARGET_ADMISSION_US = 80.0


def make_scheduler(num_rows: int, prompt: int, depth: int, hash_algo: str) -> Scheduler:
    spec = FullAttentionSpec(BLOCK_SIZE, num_kv_heads=8, head_size=128, dtype="bfloat16")
    blocks_per_request = (prompt + 2 * NUM_STEPS) // BLOCK_SIZE + 2
    return Scheduler(
        max_num_batched_tokens=num_rows * (prompt + 1),
        max_num_seqs=num_rows,
        num_slots=2 * num_rows,
        max_model_len=prompt + 2 * NUM_STEPS,
        kv_cache_config=KVCacheConfig(
            num_blocks=num_rows * blocks_per_request + 1,
            groups=(KVCacheGroup(("layer",), spec),),
        ),
        max_concurrent_steps=depth,
        hash_algo=hash_algo,
        model_hash_key="benchmark",
        vocab_size=200_000,
    )


def make_requests(
    count: int, prompt: int, start: int = 0, common: int = 0
) -> list[EngineCoreRequest]:
    """Requests of random tokens; the first `common` are those of all of them."""
    rng = random.Random(start)
    beginning = [rng.randrange(3, 150_000) for _ in range(common)]
    params = SamplingParams(max_tokens=2 * NUM_STEPS - 1, eos_token_ids=[2])
    return [
        EngineCoreRequest(
            request_id=f"chatcmpl-{start + i}",
            token_ids=beginning + [rng.randrange(3, 150_000) for _ in range(prompt - common)],
            num_prompt_tokens=prompt,
            sampling_params=params,
            seed=i,
            arrival_time=float(i),
            max_tokens=2 * NUM_STEPS - 1,
        )
        for i in range(count)
    ]


def fake_result(output: SchedulerOutput, rng: random.Random) -> ModelRunnerOutput:
    tokens = [[rng.randrange(3, 150_000)] if samples else [] for samples in output.samples]
    return ModelRunnerOutput(step_id=output.step_id, sampled_token_ids=tokens)


def decode_cost(num_rows: int, prompt: int, depth: int, common: int = 0) -> float:
    """Mean microseconds per row of one step: schedule() + update_from_output()."""
    rng = random.Random(0)
    scheduler = make_scheduler(num_rows, prompt, depth, "sha256")
    for request in make_requests(num_rows, prompt, common=common):
        scheduler.add_request(request)
    in_flight: deque[tuple[SchedulerOutput, ModelRunnerOutput]] = deque()
    costs = []
    while len(costs) < NUM_STEPS:
        start = time.thread_time()
        output = scheduler.schedule()
        scheduled = time.thread_time()
        in_flight.append((output, fake_result(output, rng)))
        if len(in_flight) < depth:
            continue
        oldest = in_flight.popleft()
        updating = time.thread_time()
        scheduler.update_from_output(*oldest)
        end = time.thread_time()
        if output.num_decode_rows == num_rows:
            costs.append((scheduled - start + end - updating) / num_rows * 1e6)
    return statistics.mean(costs)


def admission_cost(prompt: int, hash_algo: str, *, cached: bool) -> float:
    """Microseconds from add_request() to the first update of a request, less a decode step.

    With `cached` the pool is full of other requests' cached blocks, so each block is evicted
    first.
    """
    num_rows = 32
    rng = random.Random(0)
    scheduler = make_scheduler(num_rows, prompt, 1, hash_algo)
    costs = []
    for turn in range(12 if cached else 1):
        requests = make_requests(num_rows, prompt, start=turn * num_rows)
        start = time.thread_time()
        for request in requests:
            scheduler.add_request(request)
        output = scheduler.schedule()
        scheduled = time.thread_time()
        result = fake_result(output, rng)
        updating = time.thread_time()
        scheduler.update_from_output(output, result)
        end = time.thread_time()
        costs.append((scheduled - start + end - updating) / num_rows * 1e6)
        scheduler.abort_requests([request.request_id for request in requests])
        del output, result, requests, request  # their end is not part of the next turn's cost
    return costs[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    gc.freeze()

    figures: dict[str, float] = {}
    for depth in (1, 2):
        name = f"us per row and step, {args.rows} decode rows, {depth} in flight"
        figures[name] = min(decode_cost(args.rows, args.prompt, depth) for _ in range(args.repeats))
    common = args.prompt - BLOCK_SIZE
    name = f"us per row and step, {args.rows} decode rows on one prefix, 2 in flight"
    figures[name] = min(decode_cost(args.rows, args.prompt, 2, common) for _ in range(args.repeats))
    for algo in ("sha256", "xxhash"):
        for cached in (False, True):
            pool = "pool full of cached blocks" if cached else "fresh pool"
            name = f"us per admitted request, {args.prompt} tokens, {algo}, {pool}"
            figures[name] = min(
                admission_cost(args.prompt, algo, cached=cached) for _ in range(args.repeats)
            )
    for name, value in figures.items():
        target = TARGET_ADMISSION_US if "admitted" in name else TARGET_ROW_US
        print(f"{value:8.2f}  (target {target:g})  {name}")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
