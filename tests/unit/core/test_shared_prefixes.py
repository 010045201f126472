from __future__ import annotations

import random

import pytest

from octavo.core import shared_prefixes
from octavo.core.shared_prefixes import SharedPrefixes
from octavo.types.scheduler_output import MAX_SHARED_PREFIXES, SharedPrefix
from unit.core.invariants import check_invariants
from unit.core.simulated_executor import (
    full_spec,
    kv_config,
    make_driver,
    make_request,
    sliding_spec,
)

BLOCK = 4


@pytest.fixture(autouse=True)
def _cheap_groups(monkeypatch):
    """Two rows on one block are a group."""
    monkeypatch.setattr(shared_prefixes, "MIN_SAVED_BYTES", 1)
    monkeypatch.setattr(shared_prefixes, "MIN_PREFIX_TOKENS", 1)


def make(*tables, specs=()):
    """Slot i has tables[i]; every block is full."""
    prefixes = SharedPrefixes(kv_config(100, *specs), enabled=True)
    for slot, table in enumerate(tables):
        prefixes.add(slot, [table], len(table) * BLOCK)
    return prefixes


def groups(prefixes, slots, counts=None):
    """{slots of a group: tokens} of a step; its rows are where `order` says."""
    order, found = prefixes.arrange(slots, counts or [1] * len(slots))
    if order is not None:
        assert sorted(order) == list(range(len(slots)))
        slots = [slots[row] for row in order]
    return {tuple(slots[p.first_row : p.first_row + p.num_rows]): p.num_tokens for p in found}


def test_rows_of_one_prefix():
    prefixes = make([1, 2, 3], [1, 2, 4], [9, 2, 3], [1, 2, 3, 7])
    # Two of them share a block more, which saves less than the third.
    assert groups(prefixes, [0, 1, 2, 3]) == {(0, 1, 3): 8}
    order, found = prefixes.arrange([2, 3, 1, 0], [1] * 4)
    assert order == [1, 2, 3, 0]
    assert found == [SharedPrefix(0, 3, 8)]


def test_no_group_leaves_the_rows_as_they_are():
    prefixes = make([1, 2], [3, 4], [5, 2])
    assert prefixes.arrange([0, 1, 2], [1, 1, 1]) == (None, [])


def test_the_deeper_of_two_groups_when_it_saves_more():
    shared = list(range(1, 11))
    prefixes = make([*shared, 20], [*shared, 21], [*shared, 22], [1, 30], [1, 31])
    # 2 * 10 blocks for the three, 1 for the two that are left; all five on one block save 4.
    assert groups(prefixes, [0, 1, 2, 3, 4]) == {(0, 1, 2): 40, (3, 4): 4}


def test_the_wider_of_two_groups_when_it_saves_more():
    prefixes = make(*[[1, 2, 3, 4, 10 + i] for i in range(6)], [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5])
    assert groups(prefixes, list(range(8))) == {tuple(range(8)): 16}


def test_a_row_with_drafts_is_by_itself():
    prefixes = make([1, 2], [1, 3], [1, 4])
    assert groups(prefixes, [0, 1, 2], [1, 2, 1]) == {(0, 2): 4}
    assert groups(prefixes, [0, 1, 2], [1, 2, 3]) == {}
    assert groups(prefixes, [0, 1, 2], [1, 1, 1]) == {(0, 1, 2): 4}


def test_rows_come_and_go():
    prefixes = make([1, 2, 5], [1, 2, 6], [1, 3])
    assert groups(prefixes, [0, 1, 2]) in ({(0, 1): 8}, {(0, 1, 2): 4})
    prefixes.remove(1)
    assert groups(prefixes, [0, 2]) == {(0, 2): 4}
    prefixes.remove(0)
    assert groups(prefixes, [2]) == {}
    prefixes.remove(0)  # not there: nothing happens
    prefixes.add(0, [[1, 3, 8]], 3 * BLOCK)
    assert groups(prefixes, [0, 2]) == {(0, 2): 8}
    prefixes.remove(0)
    prefixes.remove(2)
    assert not prefixes._root.children
    assert not prefixes._root.num_requests


def test_blocks_that_are_not_full_are_not_shared():
    prefixes = SharedPrefixes(kv_config(100), enabled=True)
    for slot in (0, 1):
        prefixes.add(slot, [[1, 2, 3]], 2 * BLOCK + 3)
    assert groups(prefixes, [0, 1]) == {(0, 1): 8}


def test_the_largest_groups_when_there_are_too_many():
    tables = [[100 + i] * 1 + [200 + i] * (i > 0) for i in range(MAX_SHARED_PREFIXES + 1)]
    prefixes = make(*(table for table in tables for _ in "ab"))
    found = groups(prefixes, list(range(2 * len(tables))))
    assert len(found) == MAX_SHARED_PREFIXES
    assert (0, 1) not in found


@pytest.mark.parametrize(
    ("bytes_of_rule", "tokens", "expected"),
    [
        (2 * 64 * BLOCK, 1, {(0, 1, 2): 8}),  # two rows saved, two blocks of 256 bytes each
        (4 * 64 * BLOCK, 8, {(0, 1, 2): 8}),
        (4 * 64 * BLOCK + 1, 1, {}),
        (1, 9, {}),
    ],
)
def test_when_a_group_pays(monkeypatch, bytes_of_rule, tokens, expected):
    monkeypatch.setattr(shared_prefixes, "MIN_SAVED_BYTES", bytes_of_rule)
    monkeypatch.setattr(shared_prefixes, "MIN_PREFIX_TOKENS", tokens)
    prefixes = make([1, 2, 7], [1, 2, 8], [1, 2, 9])
    assert full_spec().page_bytes == 64 * BLOCK
    assert groups(prefixes, [0, 1, 2]) == expected
    if expected and bytes_of_rule > 2 * 64 * BLOCK:
        # One request has no row in this step: what is left does not pay.
        assert groups(prefixes, [0, 2]) == {}


def test_off_and_without_a_single_group_of_full_attention():
    two = (full_spec(), full_spec(8))
    for config, enabled in ((kv_config(9), False), (kv_config(9, *two), True)):
        prefixes = SharedPrefixes(config, enabled=enabled)
        prefixes.add(0, [[1], [1]], BLOCK * 2)
        prefixes.add(1, [[1], [1]], BLOCK * 2)
        assert prefixes.arrange([0, 1], [1, 1]) == (None, [])
    hybrid = SharedPrefixes(kv_config(9, sliding_spec(5), full_spec()), enabled=True)
    for slot in (0, 1):
        hybrid.add(slot, [[0, 5 + slot], [1, 2]], 2 * BLOCK)
    assert groups(hybrid, [0, 1]) == {(0, 1): 8}


@pytest.mark.parametrize("seed", range(30))
def test_random_tables(seed):
    """Against what the tables themselves say, with any order of joining and leaving."""
    rng = random.Random(seed)
    prefixes = make()
    tables: dict[int, list[int]] = {}
    for _ in range(60):
        if tables and rng.random() < 0.4:
            slot = rng.choice(list(tables))
            del tables[slot]
            prefixes.remove(slot)
        else:
            slot = rng.choice([s for s in range(20) if s not in tables] or [None])
            if slot is None:
                continue
            base = rng.choice([[], *tables.values()])
            table = base[: rng.randint(0, len(base))]
            table = [
                *table,
                *(rng.randint(1, 3) + 10 * len(table) for _ in range(rng.randint(1, 6))),
            ]
            tables[slot] = table
            prefixes.add(slot, [table], len(table) * BLOCK)
        slots = [slot for slot in tables if rng.random() < 0.9]
        found = groups(prefixes, slots)
        rows = [slot for members in found for slot in members]
        assert len(rows) == len(set(rows))
        for members, num_tokens in found.items():
            common = {tuple(tables[slot][: num_tokens // BLOCK]) for slot in members}
            assert len(common) == 1
            assert len(next(iter(common))) == num_tokens // BLOCK
        if len(slots) == len(tables):
            saved = sum((len(m) - 1) * n // BLOCK for m, n in found.items())
            assert saved >= best_single_group(tables)
            assert groups(prefixes, slots) == found  # the same rows again


def best_single_group(tables):
    counts: dict[tuple[int, ...], int] = {}
    for table in tables.values():
        for end in range(1, len(table) + 1):
            counts[tuple(table[:end])] = counts.get(tuple(table[:end]), 0) + 1
    return max(((count - 1) * len(key) for key, count in counts.items()), default=0)


def test_the_scheduler_names_the_rows_that_decode_on_one_prefix():
    driver = make_driver(max_num_batched_tokens=200)
    prompt = list(range(200, 240))
    for name in "abc":
        driver.add(make_request(name, [*prompt, ord(name), 1], 12))
    driver.add(make_request("other", 30, 12))
    driver.run()
    for name in driver.requests:
        driver.check_result(name)
    decodes = [step for step in driver.steps if step.num_decode_rows == 4]
    assert decodes
    # "other" came last, and the others were in order: no row moves.
    assert all(step.shared_prefixes == [SharedPrefix(0, 3, 40)] for step in decodes)


def test_the_scheduler_names_nothing_when_told_not_to():
    driver = make_driver(max_num_batched_tokens=200, share_prefixes=False)
    for name in "ab":
        driver.add(make_request(name, [*range(200, 240), ord(name)], 5))
    driver.run()
    assert not any(step.shared_prefixes for step in driver.steps)


def crowd(seed):
    """Many requests on few prefixes, aborted, ended and preempted; returns the driver."""
    rng = random.Random(seed)
    driver = make_driver(
        num_blocks=rng.choice((45, 60, 400)),
        max_model_len=80,
        max_num_batched_tokens=rng.choice((20, 60, 200)),
        max_num_seqs=12,
        depth=rng.randint(1, 3),
        num_drafts=rng.choice((0, 0, 2)),
        specs=rng.choice(((), (), (full_spec(), sliding_spec(9)))),
        policy=rng.choice(("fcfs", "priority")),
        seed=seed,
    )
    parts = [[rng.randrange(50) for _ in range(12)] for _ in range(3)]
    prefixes = [parts[0], parts[0] + parts[1], parts[0] + parts[2], parts[2]]
    for turn in range(120):
        if turn < 80 and rng.random() < 0.5:
            tail = [rng.randrange(50) for _ in range(rng.randint(1, 6))]
            prompt = rng.choice(prefixes) + tail
            name, priority = f"r{turn}", rng.choice((0, 1))
            driver.add(make_request(name, prompt, rng.randint(4, 30), priority=priority))
        unfinished = list(driver.scheduler._requests)
        if unfinished and rng.random() < 0.08:
            name = rng.choice(unfinished)
            if driver.tokens(name) and rng.random() < 0.5:
                driver.finish(name, len(driver.tokens(name)))
            else:
                driver.abort(name)
        driver.step()
        check_invariants(driver.scheduler)
    driver.run()
    for name in driver.requests:
        if name not in driver.ended:
            driver.check_result(name)
    assert not driver.scheduler._prefixes._nodes
    assert not driver.scheduler._prefixes._root.children
    return driver


@pytest.mark.parametrize("seed", range(20))
def test_a_crowd_on_few_prefixes(seed):
    """The executor checks every group against the tables that it was sent."""
    crowd(seed)


def test_crowds_meet_every_case():
    drivers = [crowd(seed) for seed in range(100, 108)]
    steps = [step for driver in drivers for step in driver.steps]
    assert sum(1 for step in steps if step.shared_prefixes) > 100
    assert any(len(step.shared_prefixes) > 1 for step in steps)
    assert any(step.draft_token_ids and step.shared_prefixes for step in steps)
    assert any(step.num_decode_rows < len(step.slots) for step in steps if step.shared_prefixes)
    assert any(driver.scheduler._counters.num_preemptions for driver in drivers)


def test_the_same_tokens_and_steps_with_groups_and_without():
    def run(**options):
        driver = make_driver(max_num_batched_tokens=30, num_blocks=60, depth=2, **options)
        for i in range(9):
            driver.add(make_request(f"r{i}", [*range(100, 120), *range(i)], 20 + i))
        driver.run()
        rows = [sorted(zip(s.slots, s.num_scheduled_tokens, strict=True)) for s in driver.steps]
        return rows, {name: driver.tokens(name) for name in driver.requests}

    assert run() == run(share_prefixes=False)
