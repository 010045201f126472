"""KV planning: what every layer keeps + free bytes -> the layout of the cache."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from octavo.types.errors import ConfigError
from octavo.types.kv_spec import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroup,
    KVCacheSpec,
    SlidingWindowSpec,
)
from octavo.utils.misc import cdiv

# Each group costs a block table per request on host and device and a metadata build per step.
MAX_GROUPS = 8
# Longer than any model's context; where the search for a length that fits ends.
MAX_LENGTH = 1 << 24


def tokens_ahead(
    max_num_batched_tokens: int, max_concurrent_steps: int, num_speculative_tokens: int
) -> int:
    """The most tokens for which a request holds blocks beyond those known to be computed.

    A prefill row takes at most the step's budget; decode rows pile up in the steps in flight,
    and a draft model may write as many tokens again behind the last.
    """
    row = 1 + num_speculative_tokens
    return max(max_num_batched_tokens, row * (max_concurrent_steps + 1)) + num_speculative_tokens


def peak_blocks(spec: KVCacheSpec, num_tokens: int, max_tokens_ahead: int) -> int:
    """The most blocks a request holds at one time in a group while it computes `num_tokens`.

    `max_tokens_ahead`: see `tokens_ahead`.
    """
    blocks = cdiv(num_tokens, spec.block_size)
    if isinstance(spec, SlidingWindowSpec):
        # A span of tokens touches one block more than its length asks for, at worst.
        span = spec.window - 1 + max_tokens_ahead
        return min(blocks, cdiv(span, spec.block_size) + 1)
    return blocks


def request_blocks(config: KVCacheConfig, num_tokens: int, max_tokens_ahead: int) -> int:
    """Blocks that one request of `num_tokens` needs at most at one time, over all groups."""
    return sum(peak_blocks(group.spec, num_tokens, max_tokens_ahead) for group in config.groups)


def group_layers(specs: Mapping[str, KVCacheSpec]) -> tuple[KVCacheGroup, ...]:
    """Layers in groups that share a block table.

    Layers of a group have the same spec. Pages get the same size where block sizes can be scaled
    to it. Layers of several kinds are cut into groups of equal size so that a block of the pool
    serves any group; the size is the one that leaves the fewest pages empty, first in groups of
    full attention (their waste grows with every token), then in the others; then the largest.
    No layers make no groups.
    """
    if not specs:
        return ()
    kinds: dict[KVCacheSpec, list[str]] = {}
    for name, spec in _equal_pages(specs).items():
        kinds.setdefault(spec, []).append(name)
    size = _group_size(kinds)
    groups = []
    for spec, names in kinds.items():
        count = cdiv(len(names), size)
        groups += [KVCacheGroup(tuple(names[i::count]), spec) for i in range(count)]
    return tuple(groups)


def plan_kv_cache(
    specs: Mapping[str, KVCacheSpec],
    available_bytes: int,
    *,
    max_model_len: int,
    max_tokens_ahead: int,
    num_blocks_override: int | None = None,
) -> KVCacheConfig:
    """The cache that fits `available_bytes`, or has `num_blocks_override` blocks.

    Raises ConfigError if not even one request of `max_model_len` tokens would fit.
    """
    config = _layout(specs, available_bytes, num_blocks_override)
    check_fits(config, max_model_len=max_model_len, max_tokens_ahead=max_tokens_ahead)
    return config


def check_fits(config: KVCacheConfig, *, max_model_len: int, max_tokens_ahead: int) -> None:
    """Raise ConfigError unless a request of `max_model_len` tokens fits in the empty cache."""
    needed = request_blocks(config, max_model_len, max_tokens_ahead) + 1  # the null block
    if needed <= config.num_blocks:
        return
    fitting = _longest_length(config, max_model_len, max_tokens_ahead)
    needed_mib = needed * config.block_bytes / 2**20
    have_mib = config.total_bytes / 2**20
    way_out = (
        f"set max_model_len to at most {fitting}, or give"
        if fitting
        else "no max_model_len fits: give"
    )
    raise ConfigError(
        f"max_model_len={max_model_len} needs {needed} KV blocks ({needed_mib:.1f} MiB) for one "
        f"request, but the cache has {config.num_blocks} ({have_mib:.1f} MiB); {way_out} "
        "the cache more memory (gpu_memory_utilization, kv_cache_memory_bytes or "
        "num_gpu_blocks_override)"
    )


def max_model_len_that_fits(
    specs: Mapping[str, KVCacheSpec],
    available_bytes: int,
    *,
    max_tokens_ahead: int,
    limit: int = MAX_LENGTH,
    num_blocks_override: int | None = None,
) -> int:
    """The longest request, at most `limit` tokens, that fits in the empty cache; 0 if none."""
    config = _layout(specs, available_bytes, num_blocks_override)
    return _longest_length(config, limit, max_tokens_ahead)


def _layout(
    specs: Mapping[str, KVCacheSpec], available_bytes: int, num_blocks_override: int | None
) -> KVCacheConfig:
    config = KVCacheConfig(num_blocks=1, groups=group_layers(specs))
    if not config.groups:
        return config
    num_blocks = max(available_bytes, 0) // config.block_bytes
    if num_blocks_override is not None:
        num_blocks = num_blocks_override
    return msgspec.structs.replace(config, num_blocks=num_blocks)


def _longest_length(config: KVCacheConfig, limit: int, max_tokens_ahead: int) -> int:
    low, high = 0, limit  # low fits, what is above high does not
    while low < high:
        middle = (low + high + 1) // 2
        if request_blocks(config, middle, max_tokens_ahead) < config.num_blocks:
            low = middle
        else:
            high = middle - 1
    return low


def _equal_pages(specs: Mapping[str, KVCacheSpec]) -> dict[str, KVCacheSpec]:
    """Scale block sizes so that pages are equally large, where they divide the largest."""
    largest = max(spec.page_bytes for spec in specs.values())
    scaled: dict[str, KVCacheSpec] = {}
    for name, spec in specs.items():
        factor, rest = divmod(largest, spec.page_bytes)
        scaled[name] = (
            spec
            if rest or factor == 1
            else msgspec.structs.replace(spec, block_size=spec.block_size * factor)
        )
    return scaled


def _group_size(kinds: Mapping[KVCacheSpec, list[str]]) -> int:
    """Layers per group; see `group_layers`."""
    counts = {spec: len(names) for spec, names in kinds.items()}
    largest = max(counts.values())
    max_groups = max(MAX_GROUPS, len(kinds))

    def empty_pages(size: int) -> tuple[int, int, int]:
        full = others = 0
        for spec, count in counts.items():
            if isinstance(spec, FullAttentionSpec):
                full += -count % size
            else:
                others += -count % size
        return full, others, -size

    sizes = [
        size
        for size in range(1, largest + 1)
        if sum(cdiv(count, size) for count in counts.values()) <= max_groups
    ]
    return min(sizes, key=empty_pages)
