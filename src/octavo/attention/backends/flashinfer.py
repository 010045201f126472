"""Paged attention by FlashInfer, for those who ask for it by name; without CUDA graphs."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.attention.interface import AttentionParams, AttentionSetup, CommonAttentionMetadata

_MODULE = "flashinfer"
_HALVES = (torch.float16, torch.bfloat16)
_HEAD_SIZES = (64, 128, 256)
_LAYOUT = "HND"  # of a page: heads, then tokens
# Results of parts of long rows; what the library recommends. It must be zero at first.
_WORKSPACE_BYTES = 128 << 20
# Query heads per KV head from which its decode kernels for matrix units are the faster ones.
_TENSOR_CORE_GROUP = 4

# What a plan depends on besides the rows: scale, window, soft cap.
_Way = tuple[float, int | None, float | None]


@dataclass(frozen=True, slots=True, eq=False)
class PagedRows:
    """Neighbouring rows of a step as FlashInfer wants them: N rows over P pages in all."""

    first_token: int  # of the step
    num_tokens: int
    query_starts: torch.Tensor  # [N + 1] int32, host: from 0
    page_starts: torch.Tensor  # [N + 1] int32, host: from 0
    pages: torch.Tensor  # [P] int32, device
    last_page_lens: torch.Tensor  # [N] int32, host: tokens in each row's last page, 1 or more


@dataclass(slots=True, eq=False)
class FlashInferStep:
    """One step: rows of one token and the others, and for which ways of attending it is planned."""

    decode: PagedRows | None
    prefill: PagedRows | None
    num_tokens: int  # of rows; a padded step has more
    turn: int
    planned: dict[_Way, _Wrappers] = field(default_factory=dict)


class FlashInferAttention:
    """Attention of one KV group by the wrappers of the flashinfer package. Experimental.

    Every step is planned on the host, by the host's lengths, which are exact while no drafts are
    in flight. The package compiles its kernels when they are first needed, with nvcc and ninja,
    unless flashinfer-jit-cache or flashinfer-cubin brings them. Its order of sums depends on the
    rows of a step.
    """

    name: ClassVar[str] = "flashinfer"

    def __init__(self, setup: AttentionSetup) -> None:
        self._setup = setup
        self._library: Any = importlib.import_module(_MODULE)
        self._workspace = torch.zeros(_WORKSPACE_BYTES, dtype=torch.uint8, device=setup.device)
        self._turn = 0
        self._wrappers: dict[tuple[_Way, int], _Wrappers] = {}

    @classmethod
    def unsupported(cls, setup: AttentionSetup) -> list[str]:
        """Why this backend can't serve `setup`, one reason each; empty when it can."""
        params = setup.params
        reasons = []
        if setup.device.type != "cuda":
            reasons.append(f"it needs a CUDA device, not {setup.device.type}")
        elif setup.capability is not None and setup.capability < (8, 0):
            reasons.append("it needs compute capability 8.0 or later")
        if setup.dtype not in _HALVES:
            reasons.append(f"it computes in float16 and bfloat16, not {setup.dtype}")
        if setup.kv_dtype != setup.dtype:
            reasons.append(f"a cache of {setup.kv_dtype} with queries of {setup.dtype}")
        if params.head_size not in _HEAD_SIZES:
            sizes = ", ".join(map(str, _HEAD_SIZES))
            reasons.append(f"head size {params.head_size} is none of {sizes}")
        if params.sinks is not None:
            reasons.append("it has no attention sinks here")
        if params.alibi_slopes is not None:
            reasons.append("it has no biases by distance (ALiBi) of one's own")
        if setup.batch_invariant:
            reasons.append("its order of sums depends on the rows of a step")
        if not reasons and importlib.util.find_spec(_MODULE) is None:
            reasons.append("FlashInfer (flashinfer-python) is not installed")
        return reasons

    def warm_up(self) -> None:
        """Nothing: kernels are compiled for what the warm-up's steps ask for."""

    def build_metadata(self, batch: CommonAttentionMetadata) -> FlashInferStep:
        """Gather the rows' pages; see AttentionBackend.build_metadata."""
        count = batch.num_rows
        starts = batch.query_start_loc_cpu[: count + 1].astype(np.int64)
        lengths = batch.seq_lens_cpu[:count].astype(np.int64)
        longer = np.flatnonzero(np.diff(starts) != 1)
        num_decode = int(longer[0]) if len(longer) else count
        self._turn = 1 - self._turn
        return FlashInferStep(
            decode=self._rows(batch, 0, num_decode, starts, lengths),
            prefill=self._rows(batch, num_decode, count, starts, lengths),
            num_tokens=batch.num_tokens,
            turn=self._turn,
        )

    def forward(
        self, q: torch.Tensor, kv: torch.Tensor, metadata: FlashInferStep, params: AttentionParams
    ) -> torch.Tensor:
        """Attention of every token of the step; see AttentionBackend.forward."""
        way = (params.scale, params.sliding_window, params.soft_cap)
        wrappers = metadata.planned.get(way)
        if wrappers is None:
            wrappers = self._plan(way, metadata)
            metadata.planned[way] = wrappers
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        # Nobody computes the tokens of no row, which must hold numbers.
        out[metadata.num_tokens :] = 0
        for rows, wrapper in (
            (metadata.decode, wrappers.decode),
            (metadata.prefill, wrappers.prefill),
        ):
            if rows is not None:
                part = slice(rows.first_token, rows.first_token + rows.num_tokens)
                wrapper.run(q[part], kv, out=out[part])
        return out.flatten(1)

    def _plan(self, way: _Way, step: FlashInferStep) -> _Wrappers:
        wrappers = self._wrappers.get((way, step.turn))
        if wrappers is None:
            wrappers = _Wrappers(self._library, self._workspace, self._setup, way)
            self._wrappers[way, step.turn] = wrappers
        wrappers.plan(step)
        return wrappers

    def _rows(
        self,
        batch: CommonAttentionMetadata,
        first: int,
        end: int,
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
    ) -> PagedRows | None:
        """Rows first to end of the step; None for no rows."""
        if first == end:
            return None
        size = self._setup.block_size
        counts = -(-lengths[first:end] // size)
        page_starts = np.zeros(end - first + 1, dtype=np.int64)
        np.cumsum(counts, out=page_starts[1:])
        # The place of each page in the block table: the row, and how many pages it has before.
        places = np.empty((2, int(page_starts[-1])), dtype=np.int64)
        places[0] = np.repeat(np.arange(first, end), counts)
        places[1] = np.arange(places.shape[1]) - np.repeat(page_starts[:-1], counts)
        row, index = self._to_device(places)
        query_starts = starts[first : end + 1] - starts[first]
        return PagedRows(
            first_token=int(starts[first]),
            num_tokens=int(query_starts[-1]),
            query_starts=_int32(query_starts),
            page_starts=_int32(page_starts),
            pages=batch.block_table[batch.slots[row], index],
            last_page_lens=_int32(lengths[first:end] - (counts - 1) * size),
        )

    def _to_device(self, values: NDArray[np.int64]) -> torch.Tensor:
        host = torch.from_numpy(values)
        if self._setup.device.type == "cuda":
            # Pinned memory is not used again before the copy is done: the allocator sees to it.
            host = host.pin_memory()
        return host.to(self._setup.device, non_blocking=True)


class _Wrappers:
    """FlashInfer's objects for one way of attending: they keep the plan of one step.

    A plan is copied to the device from pinned memory of the wrapper, without waiting. Steps take
    turns with two of these, and a plan waits for the copy of the one that it overwrites.
    """

    def __init__(
        self, library: Any, workspace: torch.Tensor, setup: AttentionSetup, way: _Way
    ) -> None:
        params = setup.params
        self._setup = setup
        self._way = way
        self._copied = torch.Event(setup.device) if setup.device.type == "cuda" else None
        self.decode = library.BatchDecodeWithPagedKVCacheWrapper(
            workspace,
            _LAYOUT,
            use_tensor_cores=params.num_heads // params.num_kv_heads >= _TENSOR_CORE_GROUP,
        )
        self.prefill = library.BatchPrefillWithPagedKVCacheWrapper(workspace, _LAYOUT)

    def plan(self, step: FlashInferStep) -> None:
        """Divide a step's work."""
        if self._copied is not None:
            self._copied.synchronize()
        params = self._setup.params
        scale, window, soft_cap = self._way
        shape = (params.num_heads, params.num_kv_heads, params.head_size, self._setup.block_size)
        options = {
            "sm_scale": scale,
            "window_left": -1 if window is None else window - 1,
            "logits_soft_cap": soft_cap,
            "q_data_type": self._setup.dtype,
            "kv_data_type": self._setup.kv_dtype,
        }
        if (rows := step.decode) is not None:
            self.decode.plan(rows.page_starts, rows.pages, rows.last_page_lens, *shape, **options)
        if (rows := step.prefill) is not None:
            self.prefill.plan(
                rows.query_starts,
                rows.page_starts,
                rows.pages,
                rows.last_page_lens,
                *shape,
                causal=True,
                **options,
            )
        if self._copied is not None:
            self._copied.record()


def _int32(values: NDArray[np.int64]) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.int32))
