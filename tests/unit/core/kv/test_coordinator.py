from __future__ import annotations

import random

import pytest

from octavo.core.kv.block_pool import NULL_BLOCK, BlockPool
from octavo.core.kv.coordinator import (
    HybridCoordinator,
    NoPrefixCacheCoordinator,
    UnitaryCoordinator,
    build_coordinator,
)
from octavo.types.kv_spec import SlidingWindowSpec
from unit.core.simulated_executor import full_spec, kv_config, sliding_spec


def make(*specs, num_blocks=200, caching=True):
    config = kv_config(num_blocks, *specs)
    pool = BlockPool(num_blocks, len(config.groups))
    coordinator = build_coordinator(
        config, pool, enable_prefix_caching=caching, max_tokens_ahead=16
    )
    return config, pool, coordinator


def test_the_kind_follows_the_layout():
    assert type(make(full_spec())[2]) is UnitaryCoordinator
    assert type(make(full_spec(), sliding_spec(8))[2]) is HybridCoordinator
    assert type(make(full_spec(), caching=False)[2]) is NoPrefixCacheCoordinator


def test_without_caching_nothing_is_found():
    _, _, coordinator = make(full_spec(), sliding_spec(8), caching=False)
    hit = coordinator.find_hit([b"a"] * 9, 100)
    assert hit.num_tokens == 0
    assert hit.block_ids == [[], []]
    assert coordinator.hit_granularity == 0


@pytest.mark.parametrize(
    "specs",
    [
        (full_spec(4), sliding_spec(6, 4)),
        (full_spec(4), sliding_spec(6, 4), sliding_spec(13, 4)),
        (sliding_spec(5, 4), sliding_spec(11, 4)),
        (full_spec(4), sliding_spec(10, 8)),
        (full_spec(8), sliding_spec(7, 4), full_spec(4)),
        (full_spec(4), sliding_spec(9, 12), sliding_spec(3, 8)),
    ],
)
def test_hybrid_hits_equal_a_search_over_all_lengths(specs):
    rng = random.Random(0)
    found = 0
    for _ in range(300):
        config, pool, coordinator = make(*specs)
        fine = coordinator.hash_block_size
        hashes = [b"%d" % index for index in range(rng.randint(0, 14))]
        for index, group in enumerate(config.groups):
            ratio = group.spec.block_size // fine
            keys = [key for key in hashes[ratio - 1 :: ratio] if rng.random() < 0.8]
            pool.name(index, keys, pool.allocate(len(keys)))
        limit = rng.randint(0, 60)
        hit = coordinator.find_hit(hashes, limit)
        assert hit.num_tokens == longest_common_prefix(config, pool, hashes, fine, limit)
        for table, group in zip(hit.block_ids, config.groups, strict=True):
            assert len(table) * group.spec.block_size == hit.num_tokens
        found += hit.num_tokens > 0
    assert found > 20


def longest_common_prefix(config, pool, hashes, fine, limit):
    """Tries every length against the definition of what each kind of layer needs."""
    best = 0
    for length in range(min(limit, len(hashes) * fine) + 1):
        fits = True
        for index, group in enumerate(config.groups):
            size = group.spec.block_size
            first = 0
            if isinstance(group.spec, SlidingWindowSpec):
                first = max(length - group.spec.window + 1, 0)
            needed = {position // size for position in range(first, length)}
            fits &= length % size == 0 and all(
                hashes[(block + 1) * size // fine - 1] in pool.cached[index] for block in needed
            )
        if fits:
            best = length
    return best


def test_growing_appends_to_each_group():
    _, pool, coordinator = make(full_spec(4), sliding_spec(10, 8))
    tables = [[], []]
    assert coordinator.missing_blocks(tables, 9) == 3 + 2
    grown = coordinator.grow(tables, 9)
    assert [(g.group, g.start, len(g.block_ids)) for g in grown] == [(0, 0, 3), (1, 0, 2)]
    assert coordinator.capacity(tables) == 12
    assert coordinator.grow(tables, 12) == []
    grown = coordinator.grow(tables, 13)
    assert [(g.group, g.start, len(g.block_ids)) for g in grown] == [(0, 3, 1)]
    assert pool.num_free == 199 - 6


def test_windows_move_on_and_everything_returns():
    _, pool, coordinator = make(full_spec(4), sliding_spec(6, 4))
    tables = [[], []]
    coordinator.grow(tables, 40)
    assert coordinator.release_outside(tables, 20) == 3
    assert tables[1][:4] == [NULL_BLOCK] * 3 + [tables[1][3]]
    assert coordinator.release_outside(tables, 20) == 0
    assert coordinator.release_outside(tables, 24) == 1
    assert len(tables[0]) == 10
    coordinator.free(tables)
    assert pool.num_free == 199


def test_named_blocks_are_found_and_forgotten():
    _, _, coordinator = make(full_spec(4), sliding_spec(10, 8))
    tables = [[], []]
    hashes = [b"0", b"1", b"2", b"3", b"4"]
    coordinator.grow(tables, 20)
    coordinator.name_blocks(tables, hashes, 0, 3)
    assert coordinator.find_hit(hashes, 20).num_tokens == 8
    coordinator.name_blocks(tables, hashes, 3, 5)
    assert coordinator.find_hit(hashes, 20).num_tokens == 16
    coordinator.forget(tables, 8)
    assert coordinator.find_hit(hashes, 20).num_tokens == 8


def test_holding_counts_the_blocks_that_were_free():
    _, pool, coordinator = make(full_spec(4))
    tables = [[]]
    hashes = [b"0", b"1", b"2"]
    coordinator.grow(tables, 12)
    coordinator.name_blocks(tables, hashes, 0, 3)
    pool.free(tables[0][2:])
    assert coordinator.hold(coordinator.find_hit(hashes, 12).block_ids) == 1
    assert pool.num_free == 199 - 3


def test_the_tail_of_a_sequence_is_evicted_first():
    _, pool, coordinator = make(full_spec(4), num_blocks=5)
    tables = [[]]
    hashes = [b"0", b"1", b"2", b"3"]
    coordinator.grow(tables, 16)
    coordinator.name_blocks(tables, hashes, 0, 4)
    coordinator.free(tables)
    lengths = []
    for _ in range(4):
        pool.allocate(1)
        lengths.append(coordinator.find_hit(hashes, 16).num_tokens)
    assert lengths == [12, 8, 4, 0]
