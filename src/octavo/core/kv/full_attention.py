"""FullAttentionGroup: blocks of layers that keep every token."""

from __future__ import annotations

from octavo.core.kv.block_pool import BlockPool
from octavo.types.kv_spec import FullAttentionSpec
from octavo.utils.misc import cdiv


class FullAttentionGroup:
    """One table entry per block of tokens, kept as long as the request runs."""

    def __init__(
        self, group: int, spec: FullAttentionSpec, pool: BlockPool, hashes_per_block: int
    ) -> None:
        self.block_size = spec.block_size
        self._cached = pool.cached[group]
        self._ref_counts = pool.ref_counts
        self._hashes_per_block = hashes_per_block

    def longest_hit(self, hashes: list[bytes], max_tokens: int) -> int:
        """Leading tokens, at most `max_tokens`, whose blocks are all cached."""
        per_block = self._hashes_per_block
        end = max_tokens // self.block_size * per_block
        cached = self._cached
        count = 0
        for block_hash in hashes[per_block - 1 : end : per_block]:
            if block_hash not in cached:
                break
            count += 1
        return count * self.block_size

    def hit_table(self, hashes: list[bytes], num_tokens: int) -> list[int]:
        """The block table of a hit of this length."""
        per_block = self._hashes_per_block
        end = num_tokens // self.block_size * per_block
        return [self._cached[key] for key in hashes[per_block - 1 : end : per_block]]

    def blocks_to_admit(self, hit: list[int], num_tokens: int) -> int:
        """Blocks that computing `num_tokens` takes from the pool, given the table of a hit.

        Cached blocks that nobody holds count: holding them makes them unavailable, too.
        """
        ref_counts = self._ref_counts
        shared = len([block for block in hit if ref_counts[block]])
        return cdiv(num_tokens, self.block_size) - shared

    def first_needed(self, num_computed_tokens: int) -> int:
        """The first table entry that later tokens attend to."""
        return 0
