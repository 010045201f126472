"""KVSequence: what the KV cache knows of a request."""

from __future__ import annotations

from octavo.types.request import MediaSpan

# One block table per KV group.
BlockTables = list[list[int]]


class KVSequence:
    """Tokens, how far they are computed, and the blocks that hold them.

    `token_ids` holds what is known for certain. `num_computed_tokens` counts positions whose keys
    and values are in the cache once every step in flight has run; it is optimistic (drafts in
    flight count as accepted) and may exceed `len(token_ids)`.
    """

    __slots__ = (
        "block_hashes",
        "block_ids",
        "cache_salt",
        "hash_root",
        "lora_name",
        "media",
        "next_cache_at",
        "num_allocated_tokens",
        "num_cached_blocks",
        "num_computed_tokens",
        "reads_prefix_cache",
        "token_ids",
    )

    def __init__(
        self,
        token_ids: list[int],
        *,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        media: tuple[MediaSpan, ...] = (),
        reads_prefix_cache: bool = True,
    ) -> None:
        self.token_ids = token_ids
        self.lora_name = lora_name
        self.cache_salt = cache_salt
        self.media = media
        self.reads_prefix_cache = reads_prefix_cache
        self.num_computed_tokens = 0
        self.block_ids: BlockTables = []
        self.num_allocated_tokens = 0  # that the blocks of every group can hold
        self.hash_root = b""  # where the chain of hashes starts
        self.block_hashes: list[bytes] = []  # of the full blocks of token_ids, as far as needed
        self.num_cached_blocks = 0  # leading hash blocks whose KV blocks entered the prefix cache
        self.next_cache_at = 0  # computed tokens at which the next one can enter

    @property
    def num_tokens(self) -> int:
        """Tokens known for certain."""
        return len(self.token_ids)
