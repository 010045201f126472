"""BlockPool: every KV block, who holds it, and which content the prefix cache knows it by."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.core.kv.block import FreeBlocks

NULL_BLOCK = 0  # stands in tables where a sliding window has moved on; never handed out
UNNAMED = b""  # the hash of a block that the prefix cache does not know


class BlockPool:
    """Blocks are ints; a block is free when its reference count is 0.

    A free block keeps its hash until it is handed out again, and can be found by it. Each KV
    group has its own table of hashes, for the same tokens mean other content there. The first
    block with some content has the name; a later duplicate stays nameless, because block tables
    that the device already has can't be changed.
    """

    def __init__(self, num_blocks: int, num_groups: int) -> None:
        self.num_blocks = num_blocks
        self.ref_counts = [0] * num_blocks
        self.cached: list[dict[bytes, int]] = [{} for _ in range(num_groups)]
        # Of named blocks: the hash, and the table of `cached` that has it.
        self._hashes = [UNNAMED] * num_blocks
        self._tables = self.cached[:1] * num_blocks
        self._free = FreeBlocks(range(1, num_blocks))
        self.num_free = num_blocks - 1  # blocks that can be handed out

    @property
    def usage(self) -> float:
        """Share of the blocks that is held, 0..1."""
        usable = self.num_blocks - 1
        return 1.0 - self.num_free / usable if usable else 0.0

    def allocate(self, count: int) -> list[int]:
        """Blocks with a reference count of 1; raises KeyError if fewer are free."""
        blocks = self._free.take_unhashed(count)
        if len(blocks) < count:
            evicted = self._free.take_hashed(count - len(blocks))
            hashes, tables = self._hashes, self._tables
            for block in evicted:
                del tables[block][hashes[block]]
                hashes[block] = UNNAMED
            blocks += evicted
        ref_counts = self.ref_counts
        for block in blocks:
            ref_counts[block] = 1
        self.num_free -= count
        return blocks

    def touch(self, blocks: Iterable[int]) -> None:
        """Add a holder to blocks found by hash."""
        for block in blocks:
            if self.ref_counts[block] == 0:
                self._free.remove_hashed(block)
                self.num_free -= 1
            self.ref_counts[block] += 1

    def free(self, blocks: Iterable[int]) -> None:
        """Take a holder away from each block.

        Give a sequence's blocks tail first: a prefix is useful without what follows it, not the
        other way round, so the tail should be reused first.
        """
        ref_counts, hashes = self.ref_counts, self._hashes
        hashed: list[int] = []
        unhashed: list[int] = []
        for block in blocks:
            count = ref_counts[block] = ref_counts[block] - 1
            if count == 0:
                (hashed if hashes[block] else unhashed).append(block)
        self._free.add_unhashed(unhashed)
        self._free.add_hashed(hashed)
        self.num_free += len(unhashed) + len(hashed)

    def name(self, group: int, block_hashes: list[bytes], blocks: list[int]) -> None:
        """Make held blocks findable, except those whose content another block has already.

        Null blocks are passed over.
        """
        cached, hashes, tables = self.cached[group], self._hashes, self._tables
        for block_hash, block in zip(block_hashes, blocks, strict=True):
            if block != NULL_BLOCK and cached.setdefault(block_hash, block) == block:
                hashes[block] = block_hash
                tables[block] = cached

    def forget(self, block: int) -> None:
        """The content of a block can't be trusted: nobody shall find it again."""
        block_hash = self._hashes[block]
        if block_hash:
            del self._tables[block][block_hash]
            self._hashes[block] = UNNAMED
            if self.ref_counts[block] == 0:
                self._free.forget_hash(block)

    def forget_all(self) -> bool:
        """Empty the prefix cache; False, with nothing done, while any block is held."""
        if self.num_free < self.num_blocks - 1:
            return False
        for cached in self.cached:
            cached.clear()
        self._hashes = [UNNAMED] * self.num_blocks
        self._free.forget_all_hashes()
        return True
