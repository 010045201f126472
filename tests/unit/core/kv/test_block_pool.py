from __future__ import annotations

import random

import pytest

from octavo.core.kv.block_pool import BlockPool


def test_the_null_block_is_never_handed_out():
    pool = BlockPool(5, 1)
    assert sorted(pool.allocate(4)) == [1, 2, 3, 4]
    assert pool.num_free == 0
    with pytest.raises(KeyError):
        pool.allocate(1)


def test_usage():
    pool = BlockPool(5, 1)
    assert pool.usage == 0.0
    pool.allocate(1)
    assert pool.usage == 0.25
    assert BlockPool(1, 1).usage == 0.0


def test_unnamed_blocks_are_reused_first_then_the_oldest_tail():
    pool = BlockPool(6, 1)
    old = pool.allocate(2)
    pool.name(0, [b"a", b"b"], old)
    new = pool.allocate(2)
    pool.name(0, [b"c"], new[:1])
    pool.free(reversed(old))  # tail first
    pool.free(reversed(new))
    order = [pool.allocate(1)[0] for _ in range(5)]
    assert set(order[:2]) == {new[1], 5}
    assert order[2:] == [old[1], old[0], new[0]]
    assert pool.cached[0] == {}


def test_a_free_block_can_be_found_until_it_is_handed_out():
    pool = BlockPool(3, 1)
    blocks = pool.allocate(2)
    pool.name(0, [b"a", b"b"], blocks)
    pool.free(reversed(blocks))
    pool.touch([pool.cached[0][b"a"]])
    assert pool.num_free == 1
    assert pool.allocate(1) == [blocks[1]]
    assert pool.cached[0] == {b"a": blocks[0]}


def test_a_duplicate_stays_nameless():
    pool = BlockPool(4, 1)
    first, second = pool.allocate(2)
    pool.name(0, [b"a"], [first])
    pool.name(0, [b"a"], [second])
    pool.free([second])
    assert pool.allocate(1) == [second]
    assert pool.cached[0] == {b"a": first}


def test_groups_have_their_own_names():
    pool = BlockPool(4, 2)
    first, second = pool.allocate(2)
    pool.name(0, [b"a"], [first])
    pool.name(1, [b"a"], [second])
    assert pool.cached == [{b"a": first}, {b"a": second}]
    pool.free([first])
    pool.allocate(2)
    assert pool.cached == [{}, {b"a": second}]


def test_null_blocks_are_not_named():
    pool = BlockPool(4, 1)
    (block,) = pool.allocate(1)
    pool.name(0, [b"a", b"b"], [0, block])
    assert pool.cached[0] == {b"b": block}


def test_forgetting_held_and_free_blocks():
    pool = BlockPool(4, 1)
    held, free, unnamed = pool.allocate(3)
    pool.name(0, [b"a", b"b"], [held, free])
    pool.free([free])
    for block in (held, free, unnamed):
        pool.forget(block)
    assert pool.cached[0] == {}
    assert pool.allocate(1) == [free]


def test_forget_all_only_when_nothing_is_held():
    pool = BlockPool(4, 1)
    blocks = pool.allocate(2)
    pool.name(0, [b"a", b"b"], blocks)
    pool.free([blocks[1]])
    assert not pool.forget_all()
    assert len(pool.cached[0]) == 2
    pool.free([blocks[0]])
    assert pool.forget_all()
    assert pool.cached[0] == {}
    assert sorted(pool.allocate(3)) == [1, 2, 3]


def test_random_use_conserves_blocks():
    rng = random.Random(0)
    pool = BlockPool(20, 1)
    holders: list[list[int]] = []
    for step in range(2000):
        if rng.random() < 0.5 and pool.num_free:
            blocks = pool.allocate(rng.randint(1, min(4, pool.num_free)))
            pool.name(0, [b"%d" % rng.randrange(30) for _ in blocks], blocks)
            holders.append(blocks)
        elif rng.random() < 0.3 and pool.cached[0]:
            found = rng.sample(sorted(pool.cached[0].values()), 1)
            pool.touch(found)
            holders.append(found)
        elif holders:
            pool.free(reversed(holders.pop(rng.randrange(len(holders)))))
        held = [block for blocks in holders for block in blocks]
        assert all(pool.ref_counts[block] == held.count(block) for block in range(20)), step
        assert pool.num_free == 19 - len(set(held))
