from __future__ import annotations

from octavo.core.kv.block_pool import BlockPool
from octavo.core.kv.full_attention import FullAttentionGroup
from unit.core.simulated_executor import full_spec


def make_group(block_size=4, hashes_per_block=1, cached=()):
    pool = BlockPool(20, 1)
    pool.name(0, list(cached), pool.allocate(len(cached)))
    return pool, FullAttentionGroup(0, full_spec(block_size), pool, hashes_per_block)


def test_a_hit_ends_at_the_first_missing_block():
    _, group = make_group(cached=[b"0", b"1", b"3"])
    assert group.longest_hit([b"0", b"1", b"2", b"3"], 16) == 8
    assert group.longest_hit([b"9"], 16) == 0


def test_a_hit_is_whole_blocks_within_the_limit():
    _, group = make_group(cached=[b"0", b"1"])
    assert group.longest_hit([b"0", b"1"], 7) == 4
    assert group.longest_hit([b"0", b"1"], 3) == 0


def test_coarse_blocks_go_by_their_last_fine_hash():
    pool, group = make_group(block_size=8, hashes_per_block=2, cached=[b"1", b"3"])
    hashes = [b"0", b"1", b"2", b"3", b"4"]
    assert group.longest_hit(hashes, 19) == 16
    assert group.hit_table(hashes, 16) == [pool.cached[0][b"1"], pool.cached[0][b"3"]]


def test_shared_blocks_lower_the_need_but_free_ones_do_not():
    pool, group = make_group(cached=[b"0", b"1"])
    hit = group.hit_table([b"0", b"1"], 8)
    pool.free([hit[1]])
    assert group.blocks_to_admit(hit, 17) == 5 - 1


def test_every_block_is_needed_to_the_end():
    assert make_group()[1].first_needed(1000) == 0
