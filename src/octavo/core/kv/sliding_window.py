"""SlidingWindowGroup: blocks of layers that attend to the last tokens only."""

from __future__ import annotations

from octavo.core.kv.block_pool import NULL_BLOCK, BlockPool
from octavo.core.kv.planning import peak_blocks
from octavo.types.kv_spec import SlidingWindowSpec
from octavo.utils.misc import cdiv


class SlidingWindowGroup:
    """One table entry per block of tokens; entries behind the window become the null block."""

    def __init__(
        self,
        group: int,
        spec: SlidingWindowSpec,
        pool: BlockPool,
        hashes_per_block: int,
        max_tokens_ahead: int,
    ) -> None:
        """`max_tokens_ahead`: see `peak_blocks`."""
        self.block_size = spec.block_size
        self._spec = spec
        self._cached = pool.cached[group]
        self._hashes_per_block = hashes_per_block
        self._max_tokens_ahead = max_tokens_ahead

    def longest_hit(self, hashes: list[bytes], max_tokens: int) -> int:
        """The longest prefix, at most `max_tokens`, after which computing can go on.

        The token after it attends to `window - 1` tokens of it; the blocks that hold these must
        be cached, those before them need not be. Searched from the right.
        """
        per_block = self._hashes_per_block
        keys = hashes[per_block - 1 : max_tokens // self.block_size * per_block : per_block]
        needed = cdiv(self._spec.window - 1, self.block_size)
        end = len(keys)
        for index in range(len(keys) - 1, -1, -1):
            if end - index > needed:
                break
            if keys[index] not in self._cached:
                end = index
        return end * self.block_size

    def hit_table(self, hashes: list[bytes], num_tokens: int) -> list[int]:
        """The block table of a hit of this length; null where the window doesn't reach."""
        per_block = self._hashes_per_block
        keys = hashes[per_block - 1 : num_tokens // self.block_size * per_block : per_block]
        first = min(self.first_needed(num_tokens), len(keys))
        return [NULL_BLOCK] * first + [self._cached[key] for key in keys[first:]]

    def blocks_to_admit(self, hit: list[int], num_tokens: int) -> int:
        """Blocks that computing `num_tokens` takes from the pool at most at one time.

        A hit doesn't lower it: its blocks are given up while the window moves on.
        """
        return peak_blocks(self._spec, num_tokens, self._max_tokens_ahead)

    def first_needed(self, num_computed_tokens: int) -> int:
        """The first table entry that later tokens attend to."""
        return max(num_computed_tokens - self._spec.window + 1, 0) // self.block_size
