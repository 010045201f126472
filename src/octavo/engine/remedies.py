"""The one change of a configuration that makes it fit in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from octavo.config.octavo_config import OctavoConfig

MAX_UTILIZATION = 0.97
MIN_BATCHED_TOKENS = 256
# A length below this part of the one asked for is proposed only when nothing else fits.
WORTHWHILE_LENGTH = 8


def first_remedy(
    config: OctavoConfig,
    *,
    fits: Callable[[OctavoConfig], bool],
    longest: int,
    needed_kv_bytes: int,
    block_bytes: int,
    needed_share: float,
) -> str:
    """The first change, mildest first, after which `fits` says yes, as a sentence.

    `longest`: tokens of the longest request that fits now, 0 for none; `needed_kv_bytes`: what one
    request of max_model_len takes; `needed_share`: of the device's memory, for everything.
    """
    shorter = f"use --max-model-len {longest}" if longest else ""
    if longest * WORTHWHILE_LENGTH >= config.model.max_model_len:
        return shorter
    for text, changed in _changes(config, needed_kv_bytes, block_bytes, needed_share):
        if fits(changed):
            return f"use {text}"
    return shorter or "no single flag helps: use a smaller model, or a device with more memory"


def _changes(
    config: OctavoConfig, needed_kv_bytes: int, block_bytes: int, needed_share: float
) -> Iterator[tuple[str, OctavoConfig]]:
    cache, scheduler = config.cache, config.scheduler
    if cache.kv_cache_memory_bytes is not None:
        yield (
            f"--kv-cache-memory-bytes {needed_kv_bytes}",
            replace(config, cache=replace(cache, kv_cache_memory_bytes=needed_kv_bytes)),
        )
    if cache.num_gpu_blocks_override is not None:
        blocks = needed_kv_bytes // block_bytes
        yield (
            f"--num-gpu-blocks-override {blocks}",
            replace(config, cache=replace(cache, num_gpu_blocks_override=blocks)),
        )
    share = math.ceil(needed_share * 100) / 100
    if config.device.device_type == "cuda" and share <= MAX_UTILIZATION:
        yield (
            f"--gpu-memory-utilization {share:g}",
            replace(config, cache=replace(cache, gpu_memory_utilization=share)),
        )
    elif config.device.device_type == "cpu" and cache.kv_cache_memory_bytes is None:
        yield (
            f"--kv-cache-memory-bytes {needed_kv_bytes}",
            replace(config, cache=replace(cache, kv_cache_memory_bytes=needed_kv_bytes)),
        )
    tokens = scheduler.max_num_batched_tokens // 2
    while tokens >= max(MIN_BATCHED_TOKENS, scheduler.max_num_seqs):
        smaller = replace(scheduler, max_num_batched_tokens=tokens)
        yield f"--max-num-batched-tokens {tokens}", replace(config, scheduler=smaller)
        tokens //= 2
    seqs = scheduler.max_num_seqs // 2
    while seqs >= 1:
        fewer = replace(scheduler, max_num_seqs=seqs)
        yield f"--max-num-seqs {seqs}", replace(config, scheduler=fewer)
        seqs //= 2
    if config.compilation.cudagraph_capture_sizes:
        none = replace(config.compilation, cudagraph_capture_sizes=(), max_cudagraph_capture_size=0)
        yield "--enforce-eager", replace(config, compilation=none)
    if config.model.dtype == "float32":
        half = replace(config.model, dtype="bfloat16")
        half_cache = replace(cache, kv_cache_dtype="bfloat16")
        yield "--dtype bfloat16", replace(config, model=half, cache=half_cache)
