from __future__ import annotations

from octavo.core.kv.manager import KVCacheManager
from octavo.core.leaders import PrefixLeaders
from octavo.core.request import Request
from unit.core.simulated_executor import kv_config, make_request


def make():
    kv = KVCacheManager(
        kv_config(100),
        enable_prefix_caching=True,
        hash_algo="sha256",
        model_hash_key="m",
        max_tokens_ahead=32,
    )
    return kv, PrefixLeaders(kv)


def make_one(kv, tokens, computed=0, step=-1):
    """A request that has computed so many tokens in the given step."""
    request = Request(make_request("r", tokens), arrival_index=0, max_model_len=100)
    kv.prepare(request)
    if step >= 0:
        kv.open(request, kv.look_up(request))
        kv.grow(request, computed)
        kv.cache(request, computed)
        request.last_step = step
    return request


def test_a_follower_waits_for_the_blocks_it_shares():
    kv, leaders = make()
    leader = make_one(kv, list(range(40)), computed=8, step=0)
    leaders.add(leader)
    follower = make_one(kv, [*range(20), *range(50, 60)])
    assert leaders.find(follower, kv.look_up(follower))
    assert follower.leader_blocks == 5
    for step, computed, holds in ((1, 12, True), (2, 16, True), (3, 20, False)):
        kv.grow(leader, computed)
        kv.cache(leader, computed)
        leader.last_step = step
        assert leaders.holds(follower, step) is holds
    assert follower.leader is None


def test_it_does_not_wait_for_a_leader_that_stands_still():
    kv, leaders = make()
    leader = make_one(kv, list(range(40)), computed=8, step=0)
    leaders.add(leader)
    follower = make_one(kv, list(range(40)))
    assert leaders.find(follower, kv.look_up(follower))
    assert not leaders.holds(follower, 1)


def test_nobody_waits_for_the_last_token_or_for_another_prefix():
    kv, leaders = make()
    leader = make_one(kv, list(range(40)), computed=8, step=0)
    leaders.add(leader)
    for tokens in (list(range(12)), [*range(8), 1, 2, 3, 4, 5], list(range(100, 140))):
        request = make_one(kv, tokens)
        assert not leaders.find(request, kv.look_up(request))
        assert request.leader is None


def test_leaders_count_for_one_step_only():
    kv, leaders = make()
    leaders.add(make_one(kv, list(range(40)), computed=8, step=0))
    leaders.start_step()
    follower = make_one(kv, list(range(40)))
    assert not leaders.find(follower, kv.look_up(follower))


def test_a_finished_prefill_leads_nobody():
    kv, leaders = make()
    leaders.add(make_one(kv, list(range(10)), computed=10, step=0))
    follower = make_one(kv, list(range(20)))
    assert not leaders.find(follower, kv.look_up(follower))
