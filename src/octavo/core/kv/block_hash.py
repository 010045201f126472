"""Block hashes: a name for the content of a KV block that is equal wherever it is computed.

The keys and values of a block depend on the model, the adapter and every token up to the block's
end, or on what is shown in a token's place. So hashes form a chain: hash(block) = H(hash of the
block before, tokens of the block, media in it), and the chain starts from what else matters: model,
LoRA adapter, salt. The encoding is fixed (tokens as little-endian uint32), so hashes agree between
processes, restarts and machines.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from array import array
from collections.abc import Callable, Iterable
from typing import Protocol

import xxhash

from octavo.types.errors import ConfigError
from octavo.types.request import MediaSpan
from octavo.utils.misc import cdiv

_FORMAT = "octavo-kv-1"  # changes when the encoding does


class _Digest(Protocol):
    def digest(self) -> bytes: ...


# xxhash is faster but not collision-resistant: for tenants that trust each other.
DIGESTS: dict[str, Callable[[bytes], _Digest]] = {
    "sha256": hashlib.sha256,
    "xxhash": xxhash.xxh3_128,
}


class BlockHasher:
    """Hashes the token blocks of requests for one model."""

    def __init__(self, algo: str, model_key: str, block_size: int) -> None:
        """`model_key` names everything but tokens, adapter and salt that the cache content
        depends on (weights, cache dtype); `block_size` is in tokens.
        """
        if algo not in DIGESTS:
            raise ConfigError(
                f"prefix_caching_hash_algo={algo!r} is unknown; choose one of {sorted(DIGESTS)}"
            )
        self.block_size = block_size
        self._digest = DIGESTS[algo]
        self._root = self._digest(_encode("model", _FORMAT, model_key)).digest()

    def root(self, lora_name: str | None, cache_salt: str | None) -> bytes:
        """Where the chain of a request starts: nothing matches across adapters or salts."""
        if lora_name is None and cache_salt is None:
            return self._root
        return self._digest(_encode("request", lora_name, cache_salt) + self._root).digest()

    def check(self, token_ids: list[int]) -> None:
        """Raise OverflowError if a token id is not in 0..2**32-1."""
        array("I", token_ids)

    def extend(
        self,
        hashes: list[bytes],
        root: bytes,
        token_ids: list[int],
        media: Iterable[MediaSpan] = (),
    ) -> None:
        """Append the hashes of the full blocks of `token_ids` that `hashes` lacks.

        `media` may be in any order, not overlapping. Raises OverflowError as `check` does.
        """
        start = len(hashes) * self.block_size
        count = (len(token_ids) - start) // self.block_size
        if count <= 0:
            return
        tokens = array("I", token_ids[start:] if start else token_ids)
        if sys.byteorder == "big":
            tokens.byteswap()
        stride = self.block_size * tokens.itemsize
        blocks = struct.iter_unpack(f"{stride}s", tokens.tobytes()[: count * stride])
        shown = self._shown(media) if media else {}
        digest, append = self._digest, hashes.append
        parent = hashes[-1] if hashes else root
        if not shown:
            for (block,) in blocks:
                parent = digest(parent + block).digest()
                append(parent)
            return
        for index, (block,) in enumerate(blocks, start=len(hashes)):
            parent = digest(parent + block + shown.get(index, b"")).digest()
            append(parent)

    def _shown(self, media: Iterable[MediaSpan]) -> dict[int, bytes]:
        """Block -> what the media in it add to its message: each with its place in the block."""
        shown: dict[int, bytes] = {}
        size = self.block_size
        for span in sorted(media, key=lambda span: span.start):
            end = span.start + span.length
            for index in range(span.start // size, cdiv(end, size)):
                place = struct.pack("<2q", span.start - index * size, end - index * size)
                shown[index] = shown.get(index, b"") + place + _encode(span.key)
        return shown


def _encode(*parts: str | None) -> bytes:
    """Parts with their lengths, so that different parts never give the same bytes.

    The first part tells the kinds of roots apart from each other; a block's message starts with
    a digest, so no choice of names or salt can imitate one.
    """
    encoded = []
    for part in parts:
        if part is None:
            encoded.append(b"\0")
        else:
            data = part.encode("utf-8", "surrogatepass")
            encoded.append(b"\1" + struct.pack("<Q", len(data)) + data)
    return b"".join(encoded)
