from __future__ import annotations

from octavo.core.kv.manager import KVCacheManager
from octavo.core.kv.sequence import KVSequence
from unit.core.simulated_executor import full_spec, kv_config, sliding_spec


def make_manager(*specs, num_blocks=100, caching=True):
    return KVCacheManager(
        kv_config(num_blocks, *specs),
        enable_prefix_caching=caching,
        hash_algo="sha256",
        model_hash_key="m",
        max_tokens_ahead=32,
    )


def run(manager, tokens, **options):
    """A sequence whose tokens have all been computed; returns it and the length of its hit."""
    sequence = KVSequence(list(tokens), **options)
    manager.prepare(sequence)
    hit = manager.look_up(sequence)
    manager.open(sequence, hit)
    manager.grow(sequence, sequence.num_tokens)
    sequence.num_computed_tokens = sequence.num_tokens
    manager.cache(sequence, sequence.num_tokens)
    return sequence, hit.num_tokens


def test_a_repeated_prompt_leaves_one_token_to_compute():
    manager = make_manager()
    for length, expected in ((1, 0), (4, 0), (5, 4), (8, 4), (9, 8), (41, 40)):
        tokens = range(length * 100, length * 101)
        assert run(manager, tokens)[1] == 0
        assert run(manager, tokens)[1] == expected


def test_a_thousand_tokens_hit_all_but_the_last_block():
    manager = make_manager(full_spec(16), num_blocks=200)
    run(manager, range(1000))
    assert run(manager, range(1000))[1] >= 999 // 16 * 16


def test_freed_blocks_are_still_found():
    manager = make_manager()
    sequence, _ = run(manager, range(20))
    manager.close(sequence)
    assert manager.usage == 0
    assert run(manager, range(30))[1] == 20


def test_output_tokens_are_cached_as_they_become_full_blocks():
    manager = make_manager()
    sequence, _ = run(manager, range(6))
    assert sequence.next_cache_at == 8
    sequence.token_ids += range(6, 13)
    manager.grow(sequence, 13)
    manager.cache(sequence, 12)
    assert sequence.next_cache_at == 16
    assert run(manager, range(13))[1] == 12


def test_who_does_not_read_still_writes():
    manager = make_manager()
    run(manager, range(20))
    assert run(manager, range(20), reads_prefix_cache=False)[1] == 0
    assert run(manager, range(40, 60), reads_prefix_cache=False)[1] == 0
    assert run(manager, range(40, 60))[1] == 16


def test_salt_and_adapter_separate():
    manager = make_manager()
    run(manager, range(20), cache_salt="a")
    assert run(manager, range(20), cache_salt="a")[1] == 16
    assert run(manager, range(20), cache_salt="b")[1] == 0
    assert run(manager, range(20), lora_name="a")[1] == 0
    assert run(manager, range(20))[1] == 0


def test_caching_off():
    manager = make_manager(caching=False)
    run(manager, range(20))
    sequence, hit = run(manager, range(20))
    assert hit == 0
    assert sequence.block_hashes == []
    assert manager.next_hash(sequence) is None


def test_forgotten_content_is_not_found():
    manager = make_manager()
    run(manager, range(8))
    sequence, hit = run(manager, range(20))
    manager.forget(sequence, hit)
    assert run(manager, range(20))[1] == 8


def test_reset_needs_an_idle_cache():
    manager = make_manager()
    sequence, _ = run(manager, range(20))
    assert not manager.reset_prefix_cache()
    manager.close(sequence)
    assert manager.reset_prefix_cache()
    assert run(manager, range(20))[1] == 0


def test_window_release_waits_for_tokens_that_are_certain():
    manager = make_manager(sliding_spec(5))
    sequence, _ = run(manager, range(20))
    sequence.token_ids.append(20)
    sequence.num_computed_tokens = 28  # a draft or two too many
    assert manager.release_outside(sequence) == 4
    sequence.num_computed_tokens = 20
    assert manager.release_outside(sequence) == 0


def test_a_hybrid_model_holds_less_than_its_full_layers_would():
    full = make_manager(full_spec(), full_spec())
    hybrid = make_manager(full_spec(), sliding_spec(8))
    for manager in (full, hybrid):
        sequence, _ = run(manager, range(120))
        manager.release_outside(sequence)
    assert full.num_free_blocks == 99 - 60
    assert hybrid.num_free_blocks == 99 - 30 - 2


def test_shared_and_next_blocks():
    manager = make_manager()
    leader = KVSequence(list(range(40)))
    follower = KVSequence([*range(20), *range(100, 120)])
    for sequence in (leader, follower):
        manager.prepare(sequence)
    assert manager.num_shared_blocks(follower, leader) == 5
    assert manager.next_hash(leader) == leader.block_hashes[0]
    assert manager.num_reusable_blocks(follower) == 9
    assert manager.num_reusable_blocks(KVSequence([1, 2], reads_prefix_cache=False)) == 0
