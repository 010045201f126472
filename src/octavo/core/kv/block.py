"""The free list: which KV blocks nobody holds, and in which order they are handed out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable


class FreeBlocks:
    """Free block ids; every operation costs O(1) per block.

    Blocks whose content the prefix cache knows ("hashed") are worth keeping: they are handed out
    only when no other is left, least recently freed first. The others form a stack.
    """

    def __init__(self, block_ids: Iterable[int]) -> None:
        """The blocks, all unhashed; the first one is handed out first."""
        self._unhashed = list(block_ids)
        self._unhashed.reverse()
        self._hashed: OrderedDict[int, None] = OrderedDict()

    def add_unhashed(self, blocks: list[int]) -> None:
        """Blocks become free that are of no use to the prefix cache."""
        self._unhashed += blocks

    def add_hashed(self, blocks: list[int]) -> None:
        """Blocks become free that the prefix cache knows; the first is handed out first."""
        hashed = self._hashed
        for block in blocks:
            hashed[block] = None

    def take_unhashed(self, count: int) -> list[int]:
        """Up to `count` unhashed blocks, the most recently freed first."""
        start = max(len(self._unhashed) - count, 0)
        taken = self._unhashed[start:]
        del self._unhashed[start:]
        taken.reverse()
        return taken

    def take_hashed(self, count: int) -> list[int]:
        """The `count` least recently freed hashed blocks; raises KeyError if there are fewer."""
        pop = self._hashed.popitem
        return [pop(last=False)[0] for _ in range(count)]

    def remove_hashed(self, block: int) -> None:
        """A hashed block is found by the prefix cache and leaves the list."""
        del self._hashed[block]

    def forget_hash(self, block: int) -> None:
        """A free block loses its hash."""
        del self._hashed[block]
        self._unhashed.append(block)

    def forget_all_hashes(self) -> None:
        """No block is worth keeping any more."""
        self._unhashed.extend(reversed(self._hashed))
        self._hashed.clear()
