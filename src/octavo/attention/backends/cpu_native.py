"""Paged attention on the CPU by a C kernel that reads the cache in place; float32."""

from __future__ import annotations

from typing import ClassVar

import torch

from octavo.attention.interface import AttentionParams, AttentionSetup, CommonAttentionMetadata
from octavo.kernels.cpu.attention import PagedRows, paged_attention


class CPUNativeAttention:
    """One call a layer, whatever rows a step has; a token's result depends on no other row."""

    name: ClassVar[str] = "cpu_native"

    def __init__(self, setup: AttentionSetup) -> None:
        kernel = paged_attention(setup.params.head_size)
        if isinstance(kernel, str):
            raise ValueError(f"unsupported() was not asked: {kernel}")
        self._kernel = kernel

    @classmethod
    def unsupported(cls, setup: AttentionSetup) -> list[str]:
        """Why this backend can't serve `setup`, one reason each; empty when it can."""
        if setup.device.type != "cpu":
            return ["it computes on the CPU"]
        reasons = []
        if setup.dtype != torch.float32 or setup.kv_dtype != torch.float32:
            reasons.append(f"it computes in float32, not {setup.dtype} with {setup.kv_dtype}")
        if setup.params.sinks is not None:
            reasons.append("it has no attention sinks")
        if setup.params.alibi_slopes is not None:
            reasons.append("it has no biases by distance (ALiBi)")
        kernel = paged_attention(setup.params.head_size)
        if isinstance(kernel, str):
            reasons.append(kernel)
        return reasons

    def warm_up(self) -> None:
        """Nothing to prepare."""

    def build_metadata(self, batch: CommonAttentionMetadata) -> PagedRows:
        """The step's arrays as they are: on a CPU they can be read at once."""
        return PagedRows(
            batch.query_start_loc, batch.seq_lens, batch.block_table, batch.slots, batch.num_rows
        )

    def forward(
        self, q: torch.Tensor, kv: torch.Tensor, metadata: PagedRows, params: AttentionParams
    ) -> torch.Tensor:
        """Attention of every token of the step; see AttentionBackend.forward."""
        return self._kernel(q, kv, metadata, params.scale, params.sliding_window, params.soft_cap)
