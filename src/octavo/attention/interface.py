"""AttentionBackend: attention over paged keys and values, and the data of a step it works from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

M = TypeVar("M")


@dataclass(frozen=True, eq=False)
class AttentionParams:
    """What one layer's attention computes; head counts are those of this rank.

    `num_heads` is a multiple of `num_kv_heads`: query head h reads KV head
    h // (num_heads // num_kv_heads).
    """

    scale: float  # scores are q . k * scale
    num_heads: int
    num_kv_heads: int
    head_size: int
    sliding_window: int | None = None  # tokens a query sees, itself included; None: all
    soft_cap: float | None = None  # scores become cap * tanh(scores / cap)
    sinks: torch.Tensor | None = None  # [num_heads]: logit of an extra key whose value is zero
    # [num_heads] float32: scores get slope * (position of the key - that of the query), after
    # the scale and without a soft cap (ALiBi, arXiv 2108.12409).
    alibi_slopes: torch.Tensor | None = None


@dataclass(frozen=True, eq=False)
class AttentionSetup:
    """Facts and limits of one KV group: a backend is judged by them and sizes its buffers."""

    params: AttentionParams
    block_size: int  # tokens in a block
    dtype: torch.dtype  # of q and of the output
    kv_dtype: torch.dtype
    device: torch.device
    max_num_rows: int
    max_num_tokens: int
    max_model_len: int
    capability: tuple[int, int] | None = None  # CUDA compute capability
    # A token's result depends, bit for bit, on its own sequence up to itself alone: not on the
    # other rows of the step, nor on how its prompt was cut into steps.
    batch_invariant: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SharedPrefixRows:
    """Which rows of a step begin with the same blocks, on the device: data of a captured graph.

    Rows of a group are neighbours and have one token each. There are MAX_SHARED_PREFIXES groups
    at most.
    """

    first_rows: torch.Tensor  # [R] int32: the first row of the row's group
    num_tokens: torch.Tensor  # [R] int32: tokens in the group's common blocks; 0: in no group


@dataclass(frozen=True, eq=False)
class CommonAttentionMetadata:
    """One step of one KV group, before a backend has prepared it.

    R rows share T tokens: row r has the tokens query_start_loc[r] to query_start_loc[r + 1] of
    the step, the last of its `seq_lens[r]` tokens, and its keys and values are in the blocks
    `block_table[slots[r], : ceil(seq_lens[r] / block_size)]`. Decode rows come first. Arrays may
    be longer than R for a padded step; a padding row has no tokens and length 0.

    The host twins are upper bounds: with drafts in flight a length on the device may be smaller.
    Keys and values of the step's own tokens are in the cache when a backend's forward runs.
    """

    query_start_loc: torch.Tensor  # [R + 1] int32, device
    seq_lens: torch.Tensor  # [R] int32, device: tokens including this step's
    block_table: torch.Tensor  # [num_slots, max_blocks] int32, device
    slots: torch.Tensor  # [R] int64, device: the row's line of block_table
    query_start_loc_cpu: NDArray[np.int32]  # [R + 1]
    seq_lens_cpu: NDArray[np.int32]  # [R]
    num_rows: int
    num_decode_rows: int
    num_tokens: int
    max_query_len: int
    max_seq_len: int
    # A backend may use them or not; None: no step has any.
    shared_prefixes: SharedPrefixRows | None = None


class AttentionBackend(Protocol[M]):
    """One way to compute paged attention; one object per KV group, built from an AttentionSetup.

    `M` is the backend's own metadata: made once per step, read by every layer of the group.
    """

    name: ClassVar[str]

    def __init__(self, setup: AttentionSetup) -> None: ...

    @classmethod
    def unsupported(cls, setup: AttentionSetup) -> list[str]:
        """Why this backend can't serve `setup`, one reason each; empty when it can."""
        ...

    def warm_up(self) -> None:
        """Prepare what steps must not wait for; called once, in the thread that runs the steps."""
        ...

    def build_metadata(self, batch: CommonAttentionMetadata) -> M:
        """Prepare a step. Must not wait for the device; may reuse buffers of the last step."""
        ...

    def forward(
        self, q: torch.Tensor, kv: torch.Tensor, metadata: M, params: AttentionParams
    ) -> torch.Tensor:
        """Attention of every token of the step over its own sequence up to itself.

        q: [T, num_heads, head_size]. kv: the layer's view of the cache,
        [num_blocks, 2, num_kv_heads, block_size, head_size], contiguous but for the first
        dimension; index 0 of the second holds keys, 1 values. Returns [T, num_heads * head_size].
        What lies in the cache beyond a sequence's length must not reach the result; block 0, the
        null block, is finite.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LayerCache:
    """Where a layer's keys and values are: set when the cache is allocated."""

    kv: torch.Tensor  # [num_blocks, 2, num_kv_heads, block_size, head_size]
    group: int  # index of the layer's KV group


@dataclass(frozen=True, slots=True, eq=False)
class GroupStep(Generic[M]):
    """One KV group in one step."""

    backend: AttentionBackend[M]
    metadata: M
    slot_mapping: torch.Tensor  # [T] int64: block * block_size + offset per token, -1 for padding


@dataclass(frozen=True, eq=False)
class EncoderParams:
    """What one layer of an encoder computes; head counts are those of this rank."""

    scale: float  # scores are q . k * scale
    num_heads: int
    head_size: int
    reach: int | None = None  # tokens further apart don't see each other; None: all do


class EncoderAttention(Protocol):
    """Attention in which tokens see those before and behind them; made for one step."""

    def __call__(
        self,
        qkv: torch.Tensor,
        params: EncoderParams,
        distance_bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """qkv[T, 3 * heads * head_size], queries, keys, values -> [T, heads * head_size].

        distance_bias[heads, 2 N - 1], N at least the longest text: scores get
        distance_bias[:, N - 1 + the position of the key - that of the query].
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class AttentionContext:
    """Everything attention layers need in a step; handed through the model's forward."""

    caches: Mapping[str, LayerCache]  # by layer name; the same object for every step
    groups: Sequence[GroupStep[object]]
    encoder: EncoderAttention | None = None  # of an encoder, which has neither
    # [S] int64, ascending: the tokens whose hidden states will be read, where a model may leave
    # those of others undefined; None: all.
    read: torch.Tensor | None = None
