"""What each layer of a configured model keeps in the KV cache."""

from __future__ import annotations

from octavo.config.octavo_config import OctavoConfig
from octavo.types.kv_spec import FullAttentionSpec, KVCacheSpec, SlidingWindowSpec


def attention_layer_name(index: int) -> str:
    """Name of the attention layer of decoder layer `index`."""
    return f"model.layers.{index}.self_attn.attn"


def kv_cache_specs(config: OctavoConfig) -> dict[str, KVCacheSpec]:
    """Layer name -> spec, in layer order; an encoder keeps nothing."""
    arch, cache = config.model.arch, config.cache
    if arch.is_encoder:
        return {}
    specs: dict[str, KVCacheSpec] = {}
    for index in range(arch.num_layers):
        name, window = attention_layer_name(index), arch.window(index)
        if window is not None:
            specs[name] = SlidingWindowSpec(
                block_size=cache.block_size,
                num_kv_heads=arch.num_kv_heads,
                head_size=arch.head_size,
                dtype=cache.kv_cache_dtype,
                window=window,
            )
        else:
            specs[name] = FullAttentionSpec(
                block_size=cache.block_size,
                num_kv_heads=arch.num_kv_heads,
                head_size=arch.head_size,
                dtype=cache.kv_cache_dtype,
            )
    return specs
