"""KVCacheCoordinator: one or several KV groups over one block pool, with one answer."""

from __future__ import annotations

import abc
import math
import sys
from typing import NamedTuple, Protocol

from octavo.core.kv.block_pool import NULL_BLOCK, BlockPool
from octavo.core.kv.full_attention import FullAttentionGroup
from octavo.core.kv.sequence import BlockTables
from octavo.core.kv.sliding_window import SlidingWindowGroup
from octavo.types.kv_spec import KVCacheConfig, SlidingWindowSpec
from octavo.utils.misc import cdiv


class PrefixHit(NamedTuple):
    """Leading tokens found in the prefix cache and the block tables that hold them."""

    num_tokens: int
    block_ids: BlockTables


class GrownTable(NamedTuple):
    """Blocks appended to the table of a group, from entry `start` on."""

    group: int
    start: int
    block_ids: list[int]


class KVGroup(Protocol):
    """What a kind of attention keeps: the differences between full attention and windows."""

    block_size: int  # tokens

    def longest_hit(self, hashes: list[bytes], max_tokens: int) -> int:
        """The longest cached prefix, in tokens, a multiple of the block size."""

    def hit_table(self, hashes: list[bytes], num_tokens: int) -> list[int]:
        """The block table of a hit of this length."""

    def blocks_to_admit(self, hit: list[int], num_tokens: int) -> int:
        """Upper bound of the blocks that computing `num_tokens` takes from the pool."""

    def first_needed(self, num_computed_tokens: int) -> int:
        """The first table entry that later tokens attend to."""


class KVCacheCoordinator(abc.ABC):
    """Allocation over all groups; how prefixes are found is up to the subclasses."""

    def __init__(self, config: KVCacheConfig, pool: BlockPool, max_tokens_ahead: int) -> None:
        """`max_tokens_ahead`: see `planning.peak_blocks`."""
        sizes = [group.spec.block_size for group in config.groups]
        self.hash_block_size = math.gcd(*sizes)  # tokens per hash
        self.hit_granularity = math.lcm(*sizes)  # hits are multiples of this many tokens
        self._pool = pool
        self._groups = tuple(
            _build_group(index, config, pool, self.hash_block_size, max_tokens_ahead)
            for index in range(len(config.groups))
        )

    def find_hit(self, hashes: list[bytes], max_tokens: int) -> PrefixHit:
        """The longest prefix of at most `max_tokens` that every group has cached."""
        num_tokens = self._longest_hit(hashes, max_tokens)
        if not num_tokens:
            return PrefixHit(0, [[] for _ in self._groups])
        return PrefixHit(num_tokens, [g.hit_table(hashes, num_tokens) for g in self._groups])

    @abc.abstractmethod
    def _longest_hit(self, hashes: list[bytes], max_tokens: int) -> int: ...

    def blocks_to_admit(self, hit: PrefixHit, num_tokens: int) -> int:
        """Blocks that computing `num_tokens` takes from the pool at most, after a hit."""
        wanted = 0
        for group, table in zip(self._groups, hit.block_ids, strict=True):
            wanted += group.blocks_to_admit(table, num_tokens)
        return wanted

    def hold(self, tables: BlockTables) -> int:
        """Become a holder of the blocks of a hit; returns how many were free."""
        num_free = self._pool.num_free
        for table in tables:
            self._pool.touch(block for block in table if block != NULL_BLOCK)
        return num_free - self._pool.num_free

    def missing_blocks(self, tables: BlockTables, num_tokens: int) -> int:
        """Blocks to allocate before the tables can hold `num_tokens`."""
        missing = 0
        for group, table in zip(self._groups, tables, strict=True):
            missing += max(cdiv(num_tokens, group.block_size) - len(table), 0)
        return missing

    def grow(self, tables: BlockTables, num_tokens: int) -> list[GrownTable]:
        """Append blocks until the tables can hold `num_tokens`; the pool must have them."""
        grown = []
        for index, (group, table) in enumerate(zip(self._groups, tables, strict=True)):
            start = len(table)
            missing = cdiv(num_tokens, group.block_size) - start
            if missing > 0:
                blocks = self._pool.allocate(missing)
                table.extend(blocks)
                grown.append(GrownTable(index, start, blocks))
        return grown

    def capacity(self, tables: BlockTables) -> int:
        """Tokens that the tables of all groups can hold; no bound without a group."""
        sizes = (
            len(table) * group.block_size for group, table in zip(self._groups, tables, strict=True)
        )
        return min(sizes, default=sys.maxsize)

    def release_outside(self, tables: BlockTables, num_computed_tokens: int) -> int:
        """Give up blocks that no token from `num_computed_tokens` on attends to.

        Returns their number; those that others hold, too, did not become free.
        """
        num_released = 0
        for group, table in zip(self._groups, tables, strict=True):
            outside = []
            index = min(group.first_needed(num_computed_tokens), len(table)) - 1
            while index >= 0 and table[index] != NULL_BLOCK:
                outside.append(table[index])
                table[index] = NULL_BLOCK
                index -= 1
            self._pool.free(outside)
            num_released += len(outside)
        return num_released

    def name_blocks(self, tables: BlockTables, hashes: list[bytes], start: int, end: int) -> None:
        """Enter blocks into the prefix cache: hash blocks `start`..`end` have been completed."""
        for index, (group, table) in enumerate(zip(self._groups, tables, strict=True)):
            per_block = group.block_size // self.hash_block_size
            blocks = table[start // per_block : end // per_block]
            last = (start // per_block + 1) * per_block - 1  # a block has its last hash's name
            keys = hashes[last:end:per_block]
            self._pool.name(index, keys, blocks)

    def forget(self, tables: BlockTables, num_tokens: int) -> None:
        """Remove the blocks behind the first `num_tokens` from the prefix cache."""
        for group, table in zip(self._groups, tables, strict=True):
            for block in table[num_tokens // group.block_size :]:
                self._pool.forget(block)

    def free(self, tables: BlockTables) -> None:
        """Give up every block, tails first."""
        for table in tables:
            self._pool.free(block for block in reversed(table) if block != NULL_BLOCK)


class NoPrefixCacheCoordinator(KVCacheCoordinator):
    """Prefix caching off: nothing is found, nothing is named."""

    def __init__(self, config: KVCacheConfig, pool: BlockPool, max_tokens_ahead: int) -> None:
        super().__init__(config, pool, max_tokens_ahead)
        # No sequence fills such a block, so nothing is ever hashed.
        self.hash_block_size = sys.maxsize
        self.hit_granularity = 0

    def _longest_hit(self, hashes: list[bytes], max_tokens: int) -> int:
        return 0


class UnitaryCoordinator(KVCacheCoordinator):
    """One group: its answer is the answer."""

    def _longest_hit(self, hashes: list[bytes], max_tokens: int) -> int:
        return self._groups[0].longest_hit(hashes, max_tokens)


class HybridCoordinator(KVCacheCoordinator):
    """Several groups: the longest prefix on which all agree."""

    def __init__(self, config: KVCacheConfig, pool: BlockPool, max_tokens_ahead: int) -> None:
        super().__init__(config, pool, max_tokens_ahead)
        # Full attention first: it ends a search at the first miss, a window goes on to look.
        self._search_order = sorted(
            self._groups, key=lambda group: isinstance(group, SlidingWindowGroup)
        )

    def _longest_hit(self, hashes: list[bytes], max_tokens: int) -> int:
        """Shrinks the candidate until every group accepts it as it is.

        Each group returns the longest prefix it has up to the candidate, so no common prefix is
        skipped: the first candidate that none of them shrinks is the longest.
        """
        candidate = max_tokens
        while True:
            shortest = candidate
            for group in self._search_order:
                shortest = group.longest_hit(hashes, shortest)
            if shortest == candidate:
                return candidate
            candidate = shortest


def build_coordinator(
    config: KVCacheConfig, pool: BlockPool, *, enable_prefix_caching: bool, max_tokens_ahead: int
) -> KVCacheCoordinator:
    """The coordinator for this cache layout."""
    if not enable_prefix_caching:
        return NoPrefixCacheCoordinator(config, pool, max_tokens_ahead)
    if len(config.groups) == 1:
        return UnitaryCoordinator(config, pool, max_tokens_ahead)
    return HybridCoordinator(config, pool, max_tokens_ahead)


def _build_group(
    index: int,
    config: KVCacheConfig,
    pool: BlockPool,
    hash_block_size: int,
    max_tokens_ahead: int,
) -> KVGroup:
    spec = config.groups[index].spec
    hashes_per_block = spec.block_size // hash_block_size
    if isinstance(spec, SlidingWindowSpec):
        return SlidingWindowGroup(index, spec, pool, hashes_per_block, max_tokens_ahead)
    return FullAttentionGroup(index, spec, pool, hashes_per_block)
