"""Resources: what a request must be granted before it may compute, asked in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from octavo.core.kv.coordinator import GrownTable, PrefixHit
from octavo.core.kv.manager import KVCacheManager
from octavo.core.request import Request
from octavo.types.scheduler_output import NewBlocks

DEFER = 0  # an answer of `want`: not now

# A request that was preempted k times is resumed only with blocks set aside for this many tokens
# times ROOM_GROWTH**k, and is spared by preemption until it has used them. So a request that
# produces n tokens is preempted about log(n / ROOM_TOKENS) / log(ROOM_GROWTH) times at most.
ROOM_TOKENS = 64
ROOM_GROWTH = 4


class Resource(Protocol):
    """Something a request needs besides the token budget.

    Asked when a request is admitted and for each part of its prefill; a decode row needs nothing
    but KV blocks, which the scheduler asks for directly.
    """

    def want(self, request: Request, num_tokens: int) -> int:
        """How many of the next `num_tokens` may be computed in this step; DEFER for none.

        Nothing is taken yet. The answer must hold for any smaller number, too.
        """

    def commit(self, request: Request, num_tokens: int) -> None:
        """Take what computing the next `num_tokens` needs, as `want` has just granted.

        In the same step both may be called again, for more tokens from the same first one.
        """

    def release(self, request: Request) -> None:
        """Give back everything: preempted (`finish_reason` is None) or finished."""


class ResourceChain:
    """Resources in order; all must agree, each may lower the number of tokens."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._resources = tuple(resources)

    def take(self, request: Request, num_tokens: int) -> int:
        """Grant up to `num_tokens` and take what they need, or DEFER and take nothing."""
        for resource in self._resources:
            num_tokens = resource.want(request, num_tokens)
            if num_tokens == DEFER:
                return DEFER
        for resource in self._resources:
            resource.commit(request, num_tokens)
        return num_tokens

    def release(self, request: Request) -> None:
        """Give back everything the request holds."""
        for resource in self._resources:
            resource.release(request)


class KVBlocks:
    """The first Resource: blocks of the KV cache.

    A request is admitted when the blocks for all its known tokens can be set aside (fewer are
    allocated at first: blocks are allocated as chunks are computed), so that a prefill does not
    run out of blocks half-way. One block per group and running request must be left over, or
    the newcomer would be preempted as soon as the others grow. Set-aside ("reserved") blocks are
    a number only; the invariant is: reserved blocks <= free blocks.

    With sliding windows a prefill can run out after all, if its window moves past blocks that
    requests admitted later found in the prefix cache and hold; then it waits for free ones. The
    request admitted last never does, so there is no deadlock.
    """

    def __init__(
        self, kv: KVCacheManager, *, max_model_len: int, num_lookahead_tokens: int
    ) -> None:
        """`num_lookahead_tokens`: cache slots that a draft model may write past a row's tokens."""
        self._kv = kv
        self._max_model_len = max_model_len
        self._num_lookahead_tokens = num_lookahead_tokens
        self._num_reserved = 0
        self._num_holders = 0
        self._new_blocks: list[NewBlocks] = []

    def may_fit(self, request: Request) -> bool:
        """Whether asking for admission makes sense: False if less is free than last asked for.

        What others have computed since could lower the need; that is worth less than a look-up
        for every waiting request in every step.
        """
        return request.blocks_wanted <= self._admission_limit()

    def want(self, request: Request, num_tokens: int) -> int:
        """Admission if the request has a `prefix_hit`, else growth of a running request."""
        hit = request.prefix_hit
        if hit is not None:
            request.reserve_until = self._tokens_to_hold(request)
            request.blocks_wanted = self._kv.blocks_to_admit(hit, request.reserve_until)
            return num_tokens if request.blocks_wanted <= self._admission_limit() else DEFER
        released = self._kv.release_outside(request)
        unreserved = self._kv.num_free_blocks - self._num_reserved
        if released and request.num_allocated_tokens < request.reserve_until:
            # Others may hold a released block; then its successor is not there for certain.
            regained = min(released, unreserved)
            self._reserve(request, regained)
            unreserved -= regained
        end = self._end(request.num_computed_tokens + num_tokens)
        missing = self._kv.missing_blocks(request, end) - request.reserved_blocks
        return num_tokens if missing <= max(unreserved, 0) else DEFER

    def commit(self, request: Request, num_tokens: int) -> None:
        """Allocate; blocks of a running request are reported by `take_new_blocks`."""
        hit = request.prefix_hit
        if hit is not None:
            self._open(request, hit, num_tokens)
            return
        end = self._end(request.num_computed_tokens + num_tokens)
        for group, start, block_ids in self._grow(request, end):
            self._new_blocks.append(NewBlocks(request.slot, group, start, block_ids))

    def release(self, request: Request) -> None:
        """Free every block and what was set aside."""
        self._reserve(request, -request.reserved_blocks)
        self._num_holders -= 1
        self._kv.close(request)
        if self._new_blocks:  # a victim that was scheduled a moment ago
            self._new_blocks = [new for new in self._new_blocks if new.slot != request.slot]

    def take_new_blocks(self) -> list[NewBlocks]:
        """Blocks that running requests got since the last call."""
        new_blocks, self._new_blocks = self._new_blocks, []
        return new_blocks

    def _admission_limit(self) -> int:
        spare = self._num_holders * self._kv.num_groups
        return self._kv.num_free_blocks - self._num_reserved - spare

    def _tokens_to_hold(self, request: Request) -> int:
        """Tokens for which blocks are set aside at admission."""
        num_tokens = request.num_tokens
        if request.num_preemptions:
            num_tokens += ROOM_TOKENS * ROOM_GROWTH**request.num_preemptions
            num_tokens = max(min(num_tokens, request.max_computed), request.num_tokens)
        return self._end(num_tokens)

    def _end(self, num_tokens: int) -> int:
        return min(num_tokens + self._num_lookahead_tokens, self._max_model_len)

    def _open(self, request: Request, hit: PrefixHit, num_tokens: int) -> None:
        self._num_holders += 1
        taken = self._kv.open(request, hit)
        self._reserve(request, request.blocks_wanted - taken)
        request.blocks_wanted = 0
        request.prefix_hit = None
        self._grow(request, self._end(hit.num_tokens + num_tokens))

    def _grow(self, request: Request, num_tokens: int) -> list[GrownTable]:
        grown = self._kv.grow(request, num_tokens)
        if request.reserved_blocks:
            used = request.reserved_blocks
            if request.num_allocated_tokens < request.reserve_until:
                used = min(used, sum([len(table.block_ids) for table in grown]))
            self._reserve(request, -used)
        return grown

    def _reserve(self, request: Request, num_blocks: int) -> None:
        request.reserved_blocks += num_blocks
        self._num_reserved += num_blocks
