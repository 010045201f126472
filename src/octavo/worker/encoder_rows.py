"""EncoderRows: the attention context of a step of an encoder, which keeps nothing in a cache."""

from __future__ import annotations

import torch

from octavo.attention.encoder import NativeTextAttention, TextAttention
from octavo.attention.interface import AttentionContext, EncoderAttention
from octavo.kernels.cpu.texts import text_kernels
from octavo.platforms.interface import Platform
from octavo.worker.input_batch import InputBatch


class EncoderRows:
    """Where AttentionGroups is for decoders."""

    def __init__(self, num_heads: int, dtype: torch.dtype, platform: Platform) -> None:
        self._num_heads = num_heads
        is_native = platform.device.type == "cpu" and dtype == torch.float32
        self._kernels = text_kernels() if is_native else None

    def warm_up(self) -> None:
        """Nothing to prepare."""

    def context(self, batch: InputBatch) -> AttentionContext:
        """What the attention layers read in this step: every row is a whole text."""
        starts = batch.plan.query_start_loc
        attention: EncoderAttention
        if self._kernels is not None:
            attention = NativeTextAttention(self._kernels, starts)
        else:
            attention = TextAttention(starts, self._num_heads, batch.positions.device)
        return AttentionContext(caches={}, groups=(), encoder=attention)
