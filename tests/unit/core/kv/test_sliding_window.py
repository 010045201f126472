from __future__ import annotations

import random

import pytest

from octavo.core.kv.block_pool import NULL_BLOCK, BlockPool
from octavo.core.kv.sliding_window import SlidingWindowGroup
from unit.core.simulated_executor import sliding_spec


def make_group(window, cached=(), *, block_size=4, hashes_per_block=1, ahead=8):
    pool = BlockPool(40, 1)
    pool.name(0, list(cached), pool.allocate(len(cached)))
    spec = sliding_spec(window, block_size)
    return pool, SlidingWindowGroup(0, spec, pool, hashes_per_block, ahead)


def names(count):
    return [b"%d" % index for index in range(count)]


@pytest.mark.parametrize("window", [1, 2, 4, 5, 6, 9, 13, 100])
def test_hits_equal_a_search_over_all_lengths(window):
    rng = random.Random(window)
    for _ in range(200):
        hashes = names(rng.randint(0, 9))
        cached = [name for name in hashes if rng.random() < 0.6]
        _, group = make_group(window, cached)
        limit = rng.randint(0, 40)
        best = 0
        for length in range(0, min(limit, 4 * len(hashes)) + 1, 4):
            visible = range(max(length - window + 1, 0), length)
            if all(hashes[position // 4] in cached for position in visible):
                best = length
        assert group.longest_hit(hashes, limit) == best


def test_the_table_of_a_hit_is_null_behind_the_window():
    pool, group = make_group(6, names(5))
    cached = pool.cached[0]
    # The token at 20 sees 15..19.
    expected = [NULL_BLOCK] * 3 + [cached[b"3"], cached[b"4"]]
    assert group.hit_table(names(5), 20) == expected


def test_coarse_blocks_go_by_their_last_fine_hash():
    pool, group = make_group(6, [b"3"], block_size=8, hashes_per_block=2)
    assert group.longest_hit(names(5), 20) == 16
    assert group.hit_table(names(5), 16) == [NULL_BLOCK, pool.cached[0][b"3"]]


def test_first_needed_block():
    _, group = make_group(6)
    # A token at p sees p-5..p.
    assert [group.first_needed(p) for p in (0, 8, 9, 12, 13)] == [0, 0, 1, 1, 2]


def test_the_need_is_bounded_by_the_window():
    _, group = make_group(9, ahead=8)
    assert group.blocks_to_admit([], 8) == 2
    assert group.blocks_to_admit([], 10_000) == (8 + 8) // 4 + 1
