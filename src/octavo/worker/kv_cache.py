"""The KV cache's memory: one allocation in which a block's pages of all layers are contiguous.

Moving a block (offloading, transfer to another engine) is then one copy instead of one per layer
and side; kernels address a layer's pages through strides.
"""

from __future__ import annotations

import torch

from octavo.attention.interface import LayerCache
from octavo.config.kv_specs import kv_cache_specs
from octavo.config.octavo_config import OctavoConfig
from octavo.platforms.interface import Platform
from octavo.types.kv_spec import KVCacheConfig, KVCacheGroup, KVCacheSpec

TORCH_DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}


def smallest_cache(config: OctavoConfig) -> KVCacheConfig:
    """A cache of nothing but the null block, for steps over made-up requests."""
    groups: dict[KVCacheSpec, list[str]] = {}
    for name, spec in kv_cache_specs(config).items():
        groups.setdefault(spec, []).append(name)
    return KVCacheConfig(
        num_blocks=1,
        groups=tuple(KVCacheGroup(tuple(names), spec) for spec, names in groups.items()),
    )


def allocate_kv_cache(config: KVCacheConfig, platform: Platform) -> dict[str, LayerCache]:
    """Allocate the cache; returns each layer's pages, a view strided over blocks.

    A layer's pages are [num_blocks, 2, num_kv_heads, block_size, head_size], keys then values.
    """
    if not config.groups:
        return {}
    dtype = TORCH_DTYPES[config.groups[0].spec.dtype]
    page_elements = max(group.spec.page_bytes for group in config.groups) // dtype.itemsize
    shape = (config.num_blocks, config.layers_per_block, page_elements)
    data = platform.zeros(shape, dtype)
    layers: dict[str, LayerCache] = {}
    for index, group in enumerate(config.groups):
        spec = group.spec
        page = (2, spec.num_kv_heads, spec.block_size, spec.head_size)
        for position, name in enumerate(group.layer_names):
            layers[name] = LayerCache(data[:, position].view(config.num_blocks, *page), index)
    return layers
