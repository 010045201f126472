"""Paged attention in Triton: the default on CUDA, for decode, prefill, mixed and draft rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.attention.interface import AttentionParams, AttentionSetup, CommonAttentionMetadata
from octavo.kernels.chunk_attention import (
    MIN_QUERY_LEN,
    Chunk,
    chunk_attention,
    chunk_of,
    chunk_shapes,
    warm_up,
)
from octavo.kernels.decode_map import (
    DecodeMap,
    build_decode_map,
    decode_config,
    decode_memory,
    free_query_len,
    max_query_len,
)
from octavo.kernels.paged_decode import paged_decode
from octavo.kernels.paged_prefill import (
    PrefillMap,
    build_prefill_map,
    paged_prefill,
    prefill_config,
)
from octavo.utils.misc import next_power_of_2

IntArray = NDArray[np.int32]
_ANY_LENGTH = 1 << 30
_MEMORY = 227 << 10  # bytes: the shared memory of a program on Hopper


@dataclass(slots=True, eq=False)
class TritonMetadata:
    """One step: its rows, and who computes what in it.

    Rows with up to `decode_query_len` query tokens are decoded and those up to `prefill_query_len`
    prefilled by Triton kernels, which tell them apart on the device; `has_decode` and
    `has_prefill` say which of the two are launched at all. Longer rows are `chunks`.
    """

    batch: CommonAttentionMetadata
    decode_query_len: int
    prefill_query_len: int
    has_decode: bool
    has_prefill: bool
    chunks: list[Chunk]
    decode_maps: dict[int, DecodeMap] = field(default_factory=dict)  # by window, 0: none
    prefill_map: PrefillMap | None = None


class TritonAttention:
    """Attention of one KV group.

    A step may be captured in a CUDA graph: maps are built and read on the device, and launches
    depend on the step's padded sizes only. Replays must not hold a kind of row (short, long) that
    the captured step didn't.
    """

    name: ClassVar[str] = "triton"

    def __init__(self, setup: AttentionSetup) -> None:
        params = setup.params
        self._setup = setup
        self._warm_shapes: set[tuple[int, int]] = set()
        self._num_heads = params.num_heads
        self._num_kv_heads = params.num_kv_heads
        self._head_size = params.head_size
        self._block_size = setup.block_size
        self._itemsize = setup.kv_dtype.itemsize
        self._prefill_config = prefill_config(params.head_size, setup.dtype.itemsize)
        group = params.num_heads // params.num_kv_heads
        self._free_query_len = free_query_len(group)
        self._max_query_len = max_query_len(group, params.head_size, setup.kv_dtype.itemsize)
        plain = params.sliding_window is None and params.soft_cap is None and params.sinks is None
        self._library = (
            plain
            and setup.dtype.itemsize == 2
            and params.head_size <= 128
            and setup.device.type == "cuda"
            and setup.capability is not None
            and setup.capability >= (9, 0)
        )

    def warm_up(self) -> None:
        """Make cuDNN ready for the chunks of long prompts, which Triton computes until then.

        Takes 40 to 200 ms for each of a handful of shapes, and memory for one chunk's queries and
        keys.
        """
        if not self._library:
            return
        setup = self._setup
        heads = (self._num_heads, self._num_kv_heads, self._head_size)
        for square, history in chunk_shapes(setup.max_num_tokens, setup.max_model_len):
            warm_up(square, history, heads, setup.dtype, setup.device)
            self._warm_shapes.add((square, history))

    @classmethod
    def unsupported(cls, setup: AttentionSetup) -> list[str]:
        """Why this backend can't serve `setup`, one reason each; empty when it can."""
        reasons = []
        if setup.device.type != "cuda":
            reasons.append(f"it needs a CUDA device, not {setup.device.type}")
        elif setup.capability is not None and setup.capability < (8, 0):
            major, minor = setup.capability
            reasons.append(f"it needs compute capability 8.0 or later, not {major}.{minor}")
        if setup.params.head_size > 256:
            reasons.append(f"head size {setup.params.head_size} is above 256")
        if setup.block_size > 128 or setup.block_size & (setup.block_size - 1):
            reasons.append(f"block size {setup.block_size} isn't a power of two up to 128")
        elif (
            decode_memory(setup.params.head_size, setup.dtype.itemsize, setup.block_size) > _MEMORY
        ):
            reasons.append(
                f"blocks of {setup.block_size} tokens with heads of {setup.params.head_size} "
                f"{setup.dtype} are more than a multiprocessor's memory holds"
            )
        if setup.params.alibi_slopes is not None:
            reasons.append("it has no biases by distance (ALiBi)")
        if setup.kv_dtype != setup.dtype:
            reasons.append(f"a cache of {setup.kv_dtype} with queries of {setup.dtype}")
        if setup.batch_invariant:
            reasons.append("its order of sums depends on the rows of a step")
        return reasons

    def build_metadata(self, batch: CommonAttentionMetadata) -> TritonMetadata:
        """Prepare a step: choose the kernels. Their maps are built when a layer first asks."""
        limit = 1
        if batch.max_query_len > 1:
            limit = self._free_query_len
            # A step of nothing but drafts (or short chunks) is decoded as a whole.
            if limit < batch.max_query_len <= self._max_query_len:
                limit = min(next_power_of_2(batch.max_query_len), self._max_query_len)
        query_lens = np.diff(batch.query_start_loc_cpu[: batch.num_rows + 1])
        chunks = self._chunks(batch, query_lens)
        longest = MIN_QUERY_LEN - 1 if chunks else _ANY_LENGTH
        return TritonMetadata(
            batch,
            decode_query_len=limit,
            prefill_query_len=longest,
            has_decode=bool(np.any((query_lens > 0) & (query_lens <= limit))),
            has_prefill=bool(np.any((query_lens > limit) & (query_lens <= longest))),
            chunks=chunks,
        )

    def forward(
        self,
        q: torch.Tensor,
        kv: torch.Tensor,
        metadata: TritonMetadata,
        params: AttentionParams,
    ) -> torch.Tensor:
        """Attention of every token of the step; see AttentionBackend.forward."""
        batch = metadata.batch
        # Tokens of no row, behind the last one of a padded step, must hold numbers.
        make = torch.empty if batch.num_tokens == q.shape[0] else torch.zeros
        out = make(q.shape, dtype=q.dtype, device=q.device)
        num_rows = batch.seq_lens.shape[0]
        start_loc = batch.query_start_loc[: num_rows + 1]
        window = params.sliding_window or 0
        if metadata.has_decode:
            paged_decode(
                q,
                kv,
                out,
                start_loc,
                self._decode_map(metadata, window),
                scale=params.scale,
                soft_cap=params.soft_cap,
                sinks=params.sinks,
            )
        if metadata.has_prefill:
            paged_prefill(
                q,
                kv,
                out,
                batch.block_table,
                self._prefill_map(metadata, q.shape[0]),
                scale=params.scale,
                window=window,
                soft_cap=params.soft_cap,
                sinks=params.sinks,
            )
        for chunk in metadata.chunks:
            chunk_attention(q, kv, out, batch.slots, batch.block_table, chunk, scale=params.scale)
        return out.flatten(1)

    def _chunks(self, batch: CommonAttentionMetadata, query_lens: IntArray) -> list[Chunk]:
        """The rows that cuDNN computes: all the long ones, if their shapes are warm, or none."""
        # A capture is replayed with other lengths, which chunks take from the host.
        if not self._library or torch.cuda.is_current_stream_capturing():
            return []
        found = []
        for row in np.flatnonzero(query_lens >= MIN_QUERY_LEN).tolist():
            first, last = batch.query_start_loc_cpu[row : row + 2].tolist()
            chunk = chunk_of(row, first, last - first, int(batch.seq_lens_cpu[row]))
            if chunk is None or (chunk.square, chunk.history) not in self._warm_shapes:
                return []
            found.append(chunk)
        return found

    def _decode_map(self, metadata: TritonMetadata, window: int) -> DecodeMap:
        found = metadata.decode_maps.get(window)
        if found is None:
            batch, limit = metadata.batch, metadata.decode_query_len
            group = self._num_heads // self._num_kv_heads
            shared = batch.shared_prefixes
            found = metadata.decode_maps[window] = build_decode_map(
                batch.query_start_loc[: batch.seq_lens.shape[0] + 1],
                batch.seq_lens,
                batch.slots,
                batch.block_table,
                block_size=self._block_size,
                num_heads=self._num_heads,
                num_kv_heads=self._num_kv_heads,
                head_size=self._head_size,
                max_query_len=limit,
                window=window,
                config=decode_config(
                    self._head_size,
                    self._itemsize,
                    limit * group,
                    num_rows=batch.seq_lens.shape[0],
                    group=group,
                ),
                shared_rows=(
                    None if shared is None or window else (shared.first_rows, shared.num_tokens)
                ),
            )
        return found

    def _prefill_map(self, metadata: TritonMetadata, num_tokens: int) -> PrefillMap:
        if metadata.prefill_map is None:
            batch = metadata.batch
            metadata.prefill_map = build_prefill_map(
                batch.query_start_loc[: batch.seq_lens.shape[0] + 1],
                batch.seq_lens,
                batch.slots,
                num_tokens=num_tokens,
                num_heads=self._num_heads,
                num_kv_heads=self._num_kv_heads,
                min_query_len=metadata.decode_query_len + 1,
                max_query_len=metadata.prefill_query_len,
                config=self._prefill_config,
            )
        return metadata.prefill_map
