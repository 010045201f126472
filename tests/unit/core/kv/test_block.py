from __future__ import annotations

import pytest

from octavo.core.kv.block import FreeBlocks


def test_unhashed_blocks_come_in_order_at_first():
    free = FreeBlocks(range(1, 6))
    assert free.take_unhashed(2) == [1, 2]
    assert free.take_unhashed(9) == [3, 4, 5]
    assert free.take_unhashed(1) == []
    assert free.take_unhashed(0) == []


def test_the_last_freed_unhashed_block_is_reused_first():
    free = FreeBlocks([1, 2])
    free.add_unhashed([7, 8])
    assert free.take_unhashed(3) == [8, 7, 1]


def test_hashed_blocks_leave_in_the_order_of_freeing():
    free = FreeBlocks([])
    free.add_hashed([3, 1])
    free.add_hashed([2])
    free.remove_hashed(1)
    assert free.take_hashed(2) == [3, 2]
    with pytest.raises(KeyError):
        free.take_hashed(1)


def test_a_block_that_loses_its_hash_is_reused_before_hashed_ones():
    free = FreeBlocks([])
    free.add_hashed([1, 2, 3])
    free.forget_hash(2)
    assert free.take_unhashed(3) == [2]
    free.forget_all_hashes()
    assert free.take_unhashed(3) == [1, 3]
