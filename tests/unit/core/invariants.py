"""What must hold of a scheduler's books between any two calls."""

from __future__ import annotations

from collections import Counter

from octavo.core.kv.coordinator import PrefixHit
from octavo.core.request import RequestStatus
from octavo.core.scheduler import Scheduler


def check_invariants(scheduler: Scheduler) -> None:
    """Raises AssertionError naming the first thing that is wrong."""
    _check_requests(scheduler)
    _check_slots(scheduler)
    _check_blocks(scheduler)
    _check_reservations(scheduler)


def _check_requests(scheduler: Scheduler) -> None:
    running, waiting = list(scheduler._running), list(scheduler._waiting)
    assert len(set(map(id, running + waiting))) == len(running) + len(waiting)
    assert {r.request_id for r in running + waiting} == set(scheduler._requests)
    assert len(running) <= scheduler._limits.max_running
    for request in running:
        assert request.status is RequestStatus.RUNNING
        assert request.finish_reason is None
        assert request.num_computed_tokens <= request.max_computed
        assert request.num_tokens < request.max_length or request.max_tokens == 0
        written = request.num_computed_tokens + scheduler._num_speculative_tokens
        assert request.num_allocated_tokens >= min(written, scheduler._limits.max_model_len)
        size = scheduler._kv.hash_block_size
        # The last known token of a request that samples again is computed once more.
        computed = request.num_computed_tokens + request.resends
        assert request.num_cached_blocks * size <= computed
    for request in waiting:
        assert request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        assert request.slot == -1
        assert request.block_ids == []
        assert request.num_computed_tokens == 0
        assert request.reserved_blocks == 0


def _check_slots(scheduler: Scheduler) -> None:
    free = scheduler._slots._free
    running = [request.slot for request in scheduler._running]
    held_back = [slot for step in scheduler._in_flight for slot in step.released_slots]
    everything = free + running + held_back
    assert sorted(everything) == list(range(len(everything))), "a slot is lost or has two owners"
    used = {slot for step in scheduler._in_flight for slot in step.slots}
    assert not used & set(free), "a slot is free while a step in flight has it"


def _check_blocks(scheduler: Scheduler) -> None:
    pool = scheduler._kv._pool
    holders = Counter(
        block
        for request in scheduler._running
        for table in request.block_ids
        for block in table
        if block
    )
    assert [holders[block] for block in range(pool.num_blocks)] == pool.ref_counts
    free = [*pool._free._unhashed, *pool._free._hashed]
    assert len(free) == len(set(free)) == pool.num_free
    assert set(free) == {b for b in range(1, pool.num_blocks) if not pool.ref_counts[b]}
    assert all(not pool._hashes[block] for block in pool._free._unhashed)
    assert all(pool._hashes[block] for block in pool._free._hashed)
    named = {
        block: (_index(pool.cached, pool._tables[block]), block_hash)
        for block, block_hash in enumerate(pool._hashes)
        if block_hash
    }
    cached = {
        block: (group, block_hash)
        for group, table in enumerate(pool.cached)
        for block_hash, block in table.items()
    }
    assert named == cached, "hash table and blocks disagree"


def _check_reservations(scheduler: Scheduler) -> None:
    blocks = scheduler._blocks
    reserved = [request.reserved_blocks for request in scheduler._running]
    assert min(reserved, default=0) >= 0
    assert sum(reserved) == blocks._num_reserved <= scheduler._kv.num_free_blocks
    assert blocks._num_holders == len(scheduler._running)
    for request in scheduler._running:
        # With a prefix cache, others may hold blocks that a window has moved past.
        caching = scheduler.prefix_hit_granularity > 0
        if not caching and request.num_allocated_tokens < request.reserve_until:
            held = sum(1 for table in request.block_ids for block in table if block)
            no_hit = PrefixHit(0, [[] for _ in request.block_ids])
            needed = scheduler._kv.blocks_to_admit(no_hit, request.reserve_until)
            assert held + request.reserved_blocks >= needed, "a prefill may run out of blocks"


def _index(tables: list[dict], table: dict) -> int:
    return next(index for index, other in enumerate(tables) if other is table)
