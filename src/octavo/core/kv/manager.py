"""KVCacheManager: the blocks and the cached prefix of each request."""

from __future__ import annotations

from octavo.core.kv.block_hash import BlockHasher
from octavo.core.kv.block_pool import BlockPool
from octavo.core.kv.coordinator import GrownTable, PrefixHit, build_coordinator
from octavo.core.kv.sequence import KVSequence
from octavo.types.kv_spec import KVCacheConfig


class KVCacheManager:
    """What the scheduler talks to. Mechanism only: who may take blocks is decided elsewhere.

    When blocks enter the prefix cache: those of a prefill as soon as the step that computes them
    is scheduled, for steps run in order and a step writes all keys and values of a layer before
    any row reads them; those of generated tokens once the tokens are known. So a block can be
    found by requests admitted to the very step that fills it.
    """

    def __init__(
        self,
        config: KVCacheConfig,
        *,
        enable_prefix_caching: bool,
        hash_algo: str,
        model_hash_key: str,
        max_tokens_ahead: int,
    ) -> None:
        """`model_hash_key`: see BlockHasher; `max_tokens_ahead`: see `planning.peak_blocks`."""
        self.num_groups = len(config.groups)  # block tables per sequence
        self._pool = BlockPool(config.num_blocks, self.num_groups)
        self._coordinator = build_coordinator(
            config,
            self._pool,
            enable_prefix_caching=enable_prefix_caching,
            max_tokens_ahead=max_tokens_ahead,
        )
        self.hash_block_size = self._coordinator.hash_block_size
        self._hasher = BlockHasher(hash_algo, model_hash_key, self.hash_block_size)

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds."""
        return self._pool.num_free

    @property
    def usage(self) -> float:
        """Share of the blocks that is held, 0..1."""
        return self._pool.usage

    @property
    def hit_granularity(self) -> int:
        """The shortest reusable prefix, and the step between longer ones; 0 with caching off."""
        return self._coordinator.hit_granularity

    def prepare(self, sequence: KVSequence) -> None:
        """Hash the known tokens of a new sequence.

        Raises OverflowError if a token id is not in 0..2**32-1.
        """
        sequence.hash_root = self._hasher.root(sequence.lora_name, sequence.cache_salt)
        self._extend_hashes(sequence)
        num_hashed = len(sequence.block_hashes) * self.hash_block_size
        self._hasher.check(sequence.token_ids[num_hashed:])

    def look_up(self, sequence: KVSequence) -> PrefixHit:
        """The longest cached prefix; at least the last known token is left to compute."""
        self._extend_hashes(sequence)
        max_tokens = sequence.num_tokens - 1 if sequence.reads_prefix_cache else 0
        return self._coordinator.find_hit(sequence.block_hashes, max_tokens)

    def blocks_to_admit(self, hit: PrefixHit, num_tokens: int) -> int:
        """Blocks that computing `num_tokens` takes from the pool at most, after a hit."""
        return self._coordinator.blocks_to_admit(hit, num_tokens)

    def open(self, sequence: KVSequence, hit: PrefixHit) -> int:
        """Give a sequence the tables of a hit; returns how many of the blocks were free."""
        taken = self._coordinator.hold(hit.block_ids)
        sequence.block_ids = hit.block_ids
        sequence.num_allocated_tokens = hit.num_tokens
        self._mark_cached(sequence, hit.num_tokens // self.hash_block_size)
        return taken

    def missing_blocks(self, sequence: KVSequence, num_tokens: int) -> int:
        """Blocks to allocate before the sequence can hold `num_tokens`."""
        return self._coordinator.missing_blocks(sequence.block_ids, num_tokens)

    def grow(self, sequence: KVSequence, num_tokens: int) -> list[GrownTable]:
        """Allocate until the sequence can hold `num_tokens`; the pool must have the blocks."""
        grown = self._coordinator.grow(sequence.block_ids, num_tokens)
        sequence.num_allocated_tokens = self._coordinator.capacity(sequence.block_ids)
        return grown

    def release_outside(self, sequence: KVSequence) -> int:
        """Give up blocks that no later token attends to; returns their number.

        With drafts in flight `num_computed_tokens` may turn out too high; the tokens known for
        certain are where the next row starts at the earliest.
        """
        start = min(sequence.num_computed_tokens, sequence.num_tokens - 1)
        return self._coordinator.release_outside(sequence.block_ids, start)

    def cache(self, sequence: KVSequence, num_computed_tokens: int) -> None:
        """Put full blocks of known, computed tokens into the prefix cache."""
        end = num_computed_tokens // self.hash_block_size
        start = sequence.num_cached_blocks
        if end <= start:
            return
        self._extend_hashes(sequence)
        self._coordinator.name_blocks(sequence.block_ids, sequence.block_hashes, start, end)
        self._mark_cached(sequence, end)

    def _extend_hashes(self, sequence: KVSequence) -> None:
        self._hasher.extend(
            sequence.block_hashes, sequence.hash_root, sequence.token_ids, sequence.media
        )

    def next_hash(self, sequence: KVSequence) -> bytes | None:
        """The hash of the first full block of known tokens that is not computed yet."""
        index = sequence.num_cached_blocks
        return sequence.block_hashes[index] if index < len(sequence.block_hashes) else None

    def num_reusable_blocks(self, sequence: KVSequence) -> int:
        """Leading hash blocks that the sequence could find in the prefix cache at best."""
        if not sequence.reads_prefix_cache:
            return 0
        return (sequence.num_tokens - 1) // self.hash_block_size

    def num_shared_blocks(self, sequence: KVSequence, other: KVSequence) -> int:
        """Leading hash blocks that both have, of those `sequence` could reuse."""
        ours, theirs = sequence.block_hashes, other.block_hashes
        end = min(self.num_reusable_blocks(sequence), len(theirs))
        count = 0
        while count < end and ours[count] == theirs[count]:
            count += 1
        return count

    def forget(self, sequence: KVSequence, num_cached_tokens: int) -> None:
        """Nobody shall reuse what this sequence computed after its first tokens (a failed row)."""
        self._coordinator.forget(sequence.block_ids, num_cached_tokens)

    def close(self, sequence: KVSequence) -> None:
        """Give up every block of the sequence."""
        self._coordinator.free(sequence.block_ids)
        sequence.block_ids = []
        sequence.num_allocated_tokens = 0
        sequence.num_cached_blocks = 0

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache; False, with nothing done, while a request holds blocks."""
        return self._pool.forget_all()

    def _mark_cached(self, sequence: KVSequence, num_blocks: int) -> None:
        sequence.num_cached_blocks = num_blocks
        sequence.next_cache_at = (num_blocks + 1) * self.hash_block_size
