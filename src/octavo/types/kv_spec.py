"""What each layer keeps in the KV cache, and how the cache is laid out."""

from __future__ import annotations

import msgspec

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1}


class FullAttentionSpec(msgspec.Struct, frozen=True, tag="full"):
    """A layer that keeps keys and values of every token."""

    block_size: int  # tokens
    num_kv_heads: int
    head_size: int
    dtype: str  # a key of DTYPE_BYTES

    @property
    def page_bytes(self) -> int:
        """Bytes of one block of one layer: keys and values."""
        per_token = 2 * self.num_kv_heads * self.head_size * DTYPE_BYTES[self.dtype]
        return per_token * self.block_size


class SlidingWindowSpec(msgspec.Struct, frozen=True, tag="sliding"):
    """A layer that attends to the last `window` tokens only."""

    block_size: int
    num_kv_heads: int
    head_size: int
    dtype: str
    window: int  # tokens, the current one included

    @property
    def page_bytes(self) -> int:
        """Bytes of one block of one layer: keys and values."""
        per_token = 2 * self.num_kv_heads * self.head_size * DTYPE_BYTES[self.dtype]
        return per_token * self.block_size


KVCacheSpec = FullAttentionSpec | SlidingWindowSpec


class KVCacheGroup(msgspec.Struct, frozen=True):
    """Layers that share one block table."""

    layer_names: tuple[str, ...]
    spec: KVCacheSpec


class KVCacheConfig(msgspec.Struct, frozen=True):
    """The cache as the workers allocate it and the scheduler pages it.

    Each of the `num_blocks` blocks holds, contiguously, one page of every layer position:
    group g's i-th layer uses page i. Block 0 is the null block and is never handed out. An encoder,
    which keeps nothing, has no groups and the null block alone.
    """

    num_blocks: int
    groups: tuple[KVCacheGroup, ...]

    @property
    def layers_per_block(self) -> int:
        """Pages in one block: the size of the largest group."""
        return max((len(group.layer_names) for group in self.groups), default=0)

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all its pages."""
        pages = (group.spec.page_bytes for group in self.groups)
        return self.layers_per_block * max(pages, default=0)

    @property
    def total_bytes(self) -> int:
        """Bytes of the whole cache."""
        return self.num_blocks * self.block_bytes
