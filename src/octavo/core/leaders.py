"""PrefixLeaders: requests that compute a prefix which waiting requests could reuse."""

from __future__ import annotations

from octavo.core.kv.coordinator import PrefixHit
from octavo.core.kv.manager import KVCacheManager
from octavo.core.request import Request


class PrefixLeaders:
    """Lets followers wait for a leader's blocks instead of computing the same tokens again.

    A follower waits for a leader only in steps in which that leader computes a part of its
    prefill, and only for the blocks they share. So the wait ends when the leader has computed
    them, and also when the leader finishes, is preempted or gets no tokens.
    """

    def __init__(self, kv: KVCacheManager) -> None:
        self._kv = kv
        self._by_next_hash: dict[bytes, Request] = {}

    def start_step(self) -> None:
        """No prefill has a row yet in the step that is being built."""
        self._by_next_hash.clear()

    def add(self, request: Request) -> None:
        """A prefill got a row in this step; the blocks of the row are in the prefix cache."""
        next_hash = self._kv.next_hash(request)
        if next_hash is not None:
            self._by_next_hash[next_hash] = request

    def holds(self, request: Request, step_id: int) -> bool:
        """Whether the leader that the request waited for is still on the shared prefix."""
        leader = request.leader
        if leader is None:
            return False
        if leader.last_step == step_id and leader.num_cached_blocks < request.leader_blocks:
            return True
        request.leader = None
        return False

    def find(self, request: Request, hit: PrefixHit) -> bool:
        """Whether a leader is computing the block that follows this hit, in this step."""
        index = hit.num_tokens // self._kv.hash_block_size
        if index >= self._kv.num_reusable_blocks(request):
            return False
        request.leader = self._by_next_hash.get(request.block_hashes[index])
        if request.leader is None:
            return False
        request.leader_blocks = self._kv.num_shared_blocks(request, request.leader)
        return True
