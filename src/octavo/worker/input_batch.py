"""InputBatch: a step's tensors, read-only; InputBuffers: where the host's part of them lives."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from octavo.platforms.interface import Platform
from octavo.worker.step import Int32Array, StepPlan


@dataclass(frozen=True, slots=True)
class InputBatch:
    """What a step computes: T tokens in R rows, of which S are followed by sampling.

    A padded step's tensors are longer than the plan's counts: padding rows have no tokens in
    `query_start_loc`, padding tokens belong to the padding slot and write nowhere.
    """

    plan: StepPlan
    slots: torch.Tensor  # [R] int64
    query_start_loc: torch.Tensor  # [R + 1] int32
    seq_lens: torch.Tensor  # [R] int32, this step's tokens included
    input_ids: torch.Tensor  # [T] int32
    positions: torch.Tensor  # [T] int64
    slot_mappings: list[torch.Tensor]  # per KV group [T] int64: block * block_size + offset, or < 0
    sample_index: torch.Tensor  # [S] int64: rows followed by sampling
    logits_index: torch.Tensor  # [S] int64: their last tokens

    @property
    def all_sample(self) -> bool:
        """Whether every token is followed by sampling."""
        return self.logits_index.shape[0] == self.input_ids.shape[0]


class InputBuffers:
    """Fixed places on the device for what the host tells it about a step, filled by one copy."""

    def __init__(self, max_rows: int, max_tokens: int, copies: int, platform: Platform) -> None:
        sizes = {
            "slots": max_rows,
            "query_start_loc": max_rows + 1,
            "sample_rows": max_rows,
            "logits_index": max_rows,
            "host_ids": max_tokens,
            "token_row": max_tokens,
        }
        self._starts: dict[str, int] = {}
        total = 0
        for name, size in sizes.items():
            self._starts[name] = total
            total += size
        self._data = torch.zeros(total, dtype=torch.int32, device=platform.device)
        # A host buffer is written again only when the step that read it has long been collected.
        self._hosts = [platform.host_buffer((total,), torch.int32) for _ in range(copies + 1)]
        self._next = 0

    def begin(self) -> None:
        """Take the next host buffer."""
        self._next = (self._next + 1) % len(self._hosts)

    def put(self, name: str, values: Int32Array | list[int]) -> int:
        """Write a part of the current host buffer; returns where it ends."""
        start = self._starts[name]
        end = start + len(values)
        self._hosts[self._next].numpy()[start:end] = values
        return end

    def upload(self, end: int) -> None:
        """Copy the current host buffer up to `end` to the device."""
        self._data[:end].copy_(self._hosts[self._next][:end], non_blocking=True)

    def view(self, name: str, size: int) -> torch.Tensor:
        """The first `size` entries of a part, on the device."""
        start = self._starts[name]
        return self._data[start : start + size]
