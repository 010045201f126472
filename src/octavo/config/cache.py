"""CacheConfig: the KV cache's size, number type and sharing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from octavo.config.options import option


@dataclass(frozen=True, kw_only=True)
class CacheOptions:
    """What may be asked about the KV cache."""

    block_size: int = option(
        16, "Tokens in one block of the KV cache; a power of two.", low=1, high=256
    )
    gpu_memory_utilization: float = option(
        0.92,
        "Share of the GPU's memory that weights, activations, graphs and KV cache may use "
        "together. A CPU has its own rule: see --kv-cache-memory-bytes.",
        low=0.0,
        high=1.0,
        low_open=True,
    )
    kv_cache_memory_bytes: int | None = option(
        None,
        "Size of the KV cache in bytes (4G = 4 GiB), in place of what --gpu-memory-utilization "
        "leaves. On a CPU the default is a quarter of the free memory, at most 4 GiB.",
        low=1,
    )
    kv_cache_dtype: Literal["auto", "float32", "bfloat16", "float16"] = option(
        "auto", "Number type of keys and values in the cache. auto: that of the model."
    )
    num_gpu_blocks_override: int | None = option(
        None, "Number of KV blocks, in place of the planned one (to test preemption).", low=2
    )
    enable_prefix_caching: bool = option(
        True, "Keep the blocks of finished requests and reuse those of an equal prefix."
    )
    prefix_caching_hash_algo: Literal["sha256", "xxhash"] = option(
        "sha256",
        "Hash that names blocks. xxhash is faster and not collision-proof against an adversary.",
    )


@dataclass(frozen=True, kw_only=True)
class CacheConfig(CacheOptions):
    """The KV cache as it will be."""

    kv_cache_dtype: Literal["float32", "bfloat16", "float16"] = field()
