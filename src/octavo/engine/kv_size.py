"""How large the KV cache becomes: what was planned, or less if the device has less."""

from __future__ import annotations

from octavo.config.octavo_config import OctavoConfig
from octavo.core.kv.planning import max_model_len_that_fits, plan_kv_cache
from octavo.executor.interface import Executor
from octavo.types.kv_spec import KVCacheConfig
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

EXPECTED_SHARE = 0.97  # of the planned KV cache that a device without other users has for it


def size_kv_cache(
    config: OctavoConfig, executor: Executor, kv_limit: int, later_bytes: int
) -> tuple[KVCacheConfig, int]:
    """(the cache, the longest request that is served)."""
    specs = executor.kv_cache_specs()
    available = min(kv_limit, executor.available_kv_memory() - later_bytes)
    if available < EXPECTED_SHARE * kv_limit:
        logger.warning(
            "the device has %d MiB for the KV cache, %d MiB were planned",
            available >> 20,
            kv_limit >> 20,
        )
    max_model_len = config.model.max_model_len
    max_tokens_ahead = config.scheduler.max_tokens_ahead
    blocks = config.cache.num_gpu_blocks_override
    if config.model.fit_max_model_len:
        fitting = max_model_len_that_fits(
            specs,
            available,
            max_tokens_ahead=max_tokens_ahead,
            limit=max_model_len,
            num_blocks_override=blocks,
        )
        max_model_len = fitting or max_model_len
    kv_config = plan_kv_cache(
        specs,
        available,
        max_model_len=max_model_len,
        max_tokens_ahead=max_tokens_ahead,
        num_blocks_override=blocks,
    )
    return kv_config, max_model_len
