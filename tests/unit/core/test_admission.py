from __future__ import annotations

from octavo.core.admission import DEFER, KVBlocks, ResourceChain
from octavo.core.kv.coordinator import PrefixHit
from octavo.core.kv.manager import KVCacheManager
from octavo.core.kv.sequence import KVSequence
from octavo.core.request import Request
from unit.core.simulated_executor import full_spec, kv_config, make_request, sliding_spec


def make_blocks(num_blocks=21, specs=(), lookahead=0):
    kv = KVCacheManager(
        kv_config(num_blocks, *specs),
        enable_prefix_caching=True,
        hash_algo="sha256",
        model_hash_key="m",
        max_tokens_ahead=8,
    )
    return kv, KVBlocks(kv, max_model_len=80, num_lookahead_tokens=lookahead)


def make_request_for(kv, name, length, max_tokens=20, start=1000):
    tokens = [start + i for i in range(length)]
    request = Request(make_request(name, tokens, max_tokens), arrival_index=0, max_model_len=80)
    kv.prepare(request)
    request.prefix_hit = kv.look_up(request)
    return request


def admit(blocks, request, num_tokens, slot=0):
    assert blocks.want(request, num_tokens) == num_tokens
    hit = request.prefix_hit.num_tokens
    blocks.commit(request, num_tokens)
    request.start(slot, hit)
    request.num_computed_tokens += num_tokens


def test_all_known_tokens_must_fit_though_few_are_computed_now():
    kv, blocks = make_blocks()
    assert blocks.want(make_request_for(kv, "a", 80), 8) == 8
    kv.open(other := KVSequence([1]), PrefixHit(0, [[]]))
    kv.grow(other, 1)
    assert blocks.want(make_request_for(kv, "a", 80), 8) == DEFER


def test_blocks_are_set_aside_for_the_rest_of_a_prefill():
    kv, blocks = make_blocks()
    request = make_request_for(kv, "a", 40)
    admit(blocks, request, 8)
    assert (kv.num_free_blocks, request.reserved_blocks) == (18, 8)
    # 10 are spoken for, one more is left to the running request.
    assert blocks.want(make_request_for(kv, "b", 40, start=2000), 8) == DEFER
    assert blocks.want(make_request_for(kv, "b", 36, start=2000), 8) == 8
    assert blocks.want(request, 32) == 32
    blocks.commit(request, 32)
    assert (kv.num_free_blocks, request.reserved_blocks) == (10, 0)


def test_others_can_not_take_what_is_set_aside():
    kv, blocks = make_blocks()
    prefill = make_request_for(kv, "a", 64)
    decode = make_request_for(kv, "b", 4, start=2000)
    admit(blocks, decode, 4)
    admit(blocks, prefill, 8, slot=1)
    decode.num_computed_tokens = 12
    assert kv.num_free_blocks == 17
    assert blocks.want(decode, 1) == 1  # 3 blocks: all that are not set aside
    decode.num_computed_tokens = 16
    assert blocks.want(decode, 1) == DEFER
    assert blocks.want(prefill, 56) == 56


def test_release_returns_blocks_and_what_was_set_aside():
    kv, blocks = make_blocks()
    request = make_request_for(kv, "a", 40)
    admit(blocks, request, 8)
    blocks.release(request)
    assert (kv.num_free_blocks, request.reserved_blocks) == (20, 0)
    assert blocks.want(make_request_for(kv, "b", 80, start=2000), 8) == 8


def test_new_blocks_of_running_requests_are_reported():
    kv, blocks = make_blocks(specs=(full_spec(4), sliding_spec(6, 4)))
    request = make_request_for(kv, "a", 8)
    admit(blocks, request, 4, slot=5)
    assert blocks.take_new_blocks() == []
    assert blocks.want(request, 4) == 4
    blocks.commit(request, 4)
    new = blocks.take_new_blocks()
    assert [(b.slot, b.group, b.start, len(b.block_ids)) for b in new] == [
        (5, 0, 1, 1),
        (5, 1, 1, 1),
    ]
    assert blocks.take_new_blocks() == []


def test_new_blocks_of_a_victim_are_not_reported():
    kv, blocks = make_blocks()
    requests = [make_request_for(kv, name, 4, start=i * 1000) for i, name in enumerate("ab")]
    for slot, request in enumerate(requests):
        admit(blocks, request, 4, slot=slot)
        assert blocks.want(request, 1) == 1
        blocks.commit(request, 1)
    blocks.release(requests[0])
    assert [new.slot for new in blocks.take_new_blocks()] == [1]


def test_lookahead_within_the_models_length():
    kv, blocks = make_blocks(lookahead=3)
    request = make_request_for(kv, "a", 8)
    admit(blocks, request, 8)
    assert request.num_allocated_tokens == 12
    longest = make_request_for(kv, "b", 79, start=2000)
    blocks.release(request)
    admit(blocks, longest, 79)
    assert longest.num_allocated_tokens == 80


def test_room_grows_with_every_preemption():
    kv, blocks = make_blocks(num_blocks=100)
    request = make_request_for(kv, "a", 8, max_tokens=70)
    blocks.want(request, 8)
    assert request.reserve_until == 8
    request.preempt()
    blocks.want(request, 8)
    assert request.reserve_until == 77  # all it can ever compute


def test_asking_in_vain_is_remembered():
    kv, blocks = make_blocks()
    running = make_request_for(kv, "a", 40)
    admit(blocks, running, 40)
    waiting = make_request_for(kv, "b", 60, start=2000)
    assert blocks.may_fit(waiting)
    assert blocks.want(waiting, 8) == DEFER
    assert not blocks.may_fit(waiting)
    blocks.release(running)
    assert blocks.may_fit(waiting)


def test_what_a_window_leaves_behind_is_set_aside_again_if_it_is_there():
    """The second request holds a block that the window of the first moves past."""
    kv, blocks = make_blocks(num_blocks=10, specs=(sliding_spec(5, 4),))
    first = make_request_for(kv, "a", 40)
    admit(blocks, first, 8)

    def compute(num_tokens):
        assert blocks.want(first, num_tokens) == num_tokens
        blocks.commit(first, num_tokens)
        first.num_computed_tokens += num_tokens
        kv.cache(first, first.num_computed_tokens)

    compute(8)
    second = make_request_for(kv, "b", 40)
    assert second.prefix_hit.num_tokens == 16
    admit(blocks, second, 8, slot=1)
    compute(8)
    kv.open(other := KVSequence([1]), PrefixHit(0, [[]]))
    kv.grow(other, 1)
    assert (kv.num_free_blocks, first.reserved_blocks, second.reserved_blocks) == (3, 1, 2)
    # Two blocks are left behind, one of them held by the second request, too.
    assert blocks.want(first, 8) == 8
    assert (kv.num_free_blocks, first.reserved_blocks, second.reserved_blocks) == (4, 2, 2)


class Limit:
    def __init__(self, most):
        self.most = most
        self.log = []

    def want(self, request, num_tokens):
        self.log.append(("want", num_tokens))
        return min(num_tokens, self.most)

    def commit(self, request, num_tokens):
        self.log.append(("commit", num_tokens))

    def release(self, request):
        self.log.append("release")


def test_the_chain_asks_in_order_and_commits_the_smallest():
    first, second = Limit(9), Limit(5)
    chain = ResourceChain([first, second])
    assert chain.take(None, 20) == 5
    assert first.log == [("want", 20), ("commit", 5)]
    assert second.log == [("want", 9), ("commit", 5)]
    chain.release(None)
    assert first.log[-1] == second.log[-1] == "release"


def test_the_chain_takes_nothing_if_one_defers():
    first, second = Limit(9), Limit(0)
    assert ResourceChain([first, second]).take(None, 20) == DEFER
    assert first.log == [("want", 20)]
