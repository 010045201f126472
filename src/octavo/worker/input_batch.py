"""InputBatch: a step's tensors, read-only; InputBuffers: where the host's part of them lives."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from octavo.attention.interface import SharedPrefixRows
from octavo.platforms.interface import Platform
from octavo.utils.misc import round_up
from octavo.worker.step import IntArray, StepPlan

_ALIGNMENT = 16  # bytes, what vector loads want


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
    shared_prefixes: SharedPrefixRows  # [R] each
    input_ids: torch.Tensor  # [T] int32
    positions: torch.Tensor  # [T] int64
    slot_mappings: list[torch.Tensor]  # per KV group [T] int64: block * block_size + offset, or < 0
    sample_index: torch.Tensor  # [S] int64: rows followed by sampling
    logits_index: torch.Tensor  # [S] int64: their last tokens

    @property
    def all_sample(self) -> bool:
        """Whether every token is followed by sampling."""
        return self.logits_index.shape[0] == self.input_ids.shape[0]


@dataclass(frozen=True, slots=True)
class LaunchedStep:
    """A step whose forward pass has been queued, and nothing after it."""

    batch: InputBatch
    hidden: torch.Tensor  # [T, H]


class InputBuffers:
    """Fixed places on the device for what the host tells it about a step, filled by one copy.

    Parts have the dtype that its readers want, so that no step converts them.
    """

    def __init__(self, max_rows: int, max_tokens: int, copies: int, platform: Platform) -> None:
        int32, int64 = torch.int32, torch.int64
        parts = {
            "slots": (max_rows, int64),
            "query_start_loc": (max_rows + 1, int32),
            "sample_rows": (max_rows, int64),
            "logits_index": (max_rows, int64),
            "shared_first_rows": (max_rows, int32),
            "shared_num_tokens": (max_rows, int32),
            "host_ids": (max_tokens, int32),
            "token_row": (max_tokens, int32),
        }
        places: dict[str, tuple[slice, torch.dtype]] = {}
        total = 0
        for name, (size, dtype) in parts.items():
            end = total + size * dtype.itemsize
            places[name] = slice(total, end), dtype
            total = round_up(end, _ALIGNMENT)
        self._places = places
        self._data = torch.zeros(total, dtype=torch.uint8, device=platform.device)
        self._views = self._parts(self._data)
        # A host buffer is written again only when the step that read it has long been collected.
        self._hosts = [platform.host_buffer((total,), torch.uint8) for _ in range(copies + 1)]
        self._host_parts = [
            {name: part.numpy() for name, part in self._parts(host).items()} for host in self._hosts
        ]
        self._next = 0

    def _parts(self, data: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: data[place].view(dtype) for name, (place, dtype) in self._places.items()}

    def begin(self) -> None:
        """Take the next host buffer."""
        self._next = (self._next + 1) % len(self._hosts)

    def put(self, name: str, values: IntArray | list[int]) -> None:
        """Write a part of the current host buffer from its beginning."""
        self._host_parts[self._next][name][: len(values)] = values

    def upload(self, num_tokens: int) -> None:
        """Copy the current host buffer to the device, of the last part `num_tokens` entries."""
        place, dtype = self._places["token_row"]
        end = place.start + num_tokens * dtype.itemsize
        self._data[:end].copy_(self._hosts[self._next][:end], non_blocking=True)

    def view(self, name: str, size: int) -> torch.Tensor:
        """The first `size` entries of a part, on the device."""
        return self._views[name][:size]
