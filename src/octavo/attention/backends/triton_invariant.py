"""Paged attention in Triton for batch-invariant mode: a token's sequence decides every bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch

from octavo.attention.interface import AttentionParams, AttentionSetup, CommonAttentionMetadata
from octavo.kernels.invariant_attention import invariant_attention
from octavo.kernels.invariant_map import InvariantMap, build_invariant_map, invariant_config


@dataclass(slots=True, eq=False)
class InvariantMetadata:
    """One step: its rows, and who computes what in it, by window (0: none)."""

    batch: CommonAttentionMetadata
    maps: dict[int, InvariantMap] = field(default_factory=dict)


class TritonInvariant:
    """Attention of one KV group by one kernel for rows of every kind.

    Shared prefixes are read by each row itself, and no library computes long chunks, for both
    would add up in another order. A step may be captured in a CUDA graph.
    """

    name: ClassVar[str] = "triton_invariant"

    def __init__(self, setup: AttentionSetup) -> None:
        self._params = setup.params
        self._config = invariant_config(setup.params.head_size, setup.dtype.itemsize)

    @classmethod
    def unsupported(cls, setup: AttentionSetup) -> list[str]:
        """Why this backend can't serve `setup`, one reason each; empty when it can."""
        reasons = []
        if not setup.batch_invariant:
            reasons.append("it is for batch-invariant mode")
        if setup.device.type != "cuda":
            reasons.append(f"it needs a CUDA device, not {setup.device.type}")
        elif setup.capability is not None and setup.capability < (8, 0):
            major, minor = setup.capability
            reasons.append(f"it needs compute capability 8.0 or later, not {major}.{minor}")
        if setup.params.head_size > 256:
            reasons.append(f"head size {setup.params.head_size} is above 256")
        if setup.block_size > 128 or setup.block_size & (setup.block_size - 1):
            reasons.append(f"block size {setup.block_size} isn't a power of two up to 128")
        if setup.params.alibi_slopes is not None:
            reasons.append("it has no biases by distance (ALiBi)")
        if setup.kv_dtype != setup.dtype:
            reasons.append(f"a cache of {setup.kv_dtype} with queries of {setup.dtype}")
        return reasons

    def warm_up(self) -> None:
        """Nothing to prepare."""

    def build_metadata(self, batch: CommonAttentionMetadata) -> InvariantMetadata:
        """Prepare a step: its maps are built when a layer first asks."""
        return InvariantMetadata(batch)

    def forward(
        self,
        q: torch.Tensor,
        kv: torch.Tensor,
        metadata: InvariantMetadata,
        params: AttentionParams,
    ) -> torch.Tensor:
        """Attention of every token of the step; see AttentionBackend.forward."""
        batch = metadata.batch
        # Tokens of no row, behind the last one of a padded step, must hold numbers.
        make = torch.empty if batch.num_tokens == q.shape[0] else torch.zeros
        out = make(q.shape, dtype=q.dtype, device=q.device)
        invariant_attention(
            q,
            kv,
            out,
            batch.block_table,
            self._map(metadata, params.sliding_window or 0, q.shape[0]),
            scale=params.scale,
            soft_cap=params.soft_cap,
            sinks=params.sinks,
        )
        return out.flatten(1)

    def _map(self, metadata: InvariantMetadata, window: int, num_tokens: int) -> InvariantMap:
        found = metadata.maps.get(window)
        if found is None:
            batch, params = metadata.batch, self._params
            found = metadata.maps[window] = build_invariant_map(
                batch.query_start_loc[: batch.seq_lens.shape[0] + 1],
                batch.seq_lens,
                batch.slots,
                num_tokens=num_tokens,
                num_heads=params.num_heads,
                num_kv_heads=params.num_kv_heads,
                head_size=params.head_size,
                window=window,
                config=self._config,
            )
        return found
