"""Random attention steps over a scrambled, poisoned cache, for every backend's tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from octavo.attention.interface import (
    AttentionParams,
    AttentionSetup,
    CommonAttentionMetadata,
    SharedPrefixRows,
)
from octavo.kernels.reference.attention import paged_attention


@dataclass
class Step:
    """A step's inputs, and what the oracle needs."""

    q: torch.Tensor  # [T, Hq, D], strided over tokens as a slice of q/k/v is
    kv: torch.Tensor  # a layer's view of the cache
    batch: CommonAttentionMetadata
    rows: torch.Tensor  # [R, max_blocks]: the rows' own block tables


def make_setup(
    params: AttentionParams,
    block_size: int,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    batch_invariant: bool = False,
) -> AttentionSetup:
    return AttentionSetup(
        params=params,
        block_size=block_size,
        dtype=dtype,
        kv_dtype=dtype,
        device=torch.device(device),
        max_num_rows=256,
        max_num_tokens=4096,
        max_model_len=4096,
        batch_invariant=batch_invariant,
    )


def make_step(
    query_lens: list[int],
    seq_lens: list[int],
    params: AttentionParams,
    block_size: int,
    *,
    num_layers: int = 3,
    layer: int = 1,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    poison: bool = True,
    groups: Sequence[tuple[int, int, int]] = (),
) -> Step:
    """Rows with `query_lens` tokens at the end of sequences of `seq_lens` tokens.

    Everything in the cache that belongs to no sequence is NaN, except the null block.
    `groups`: (first row, number of rows, tokens, a multiple of the block size) that begin alike.
    """
    random = torch.Generator().manual_seed(seed)
    num_rows = len(query_lens)
    counts = [-(-length // block_size) for length in seq_lens]
    num_blocks = 1 + sum(counts) + 3
    shape = (num_blocks, num_layers, 2, params.num_kv_heads, block_size, params.head_size)
    cache = torch.full(shape, float("nan") if poison else 7.0, dtype=dtype)
    cache[0] = 0.0
    order = (torch.randperm(num_blocks - 1, generator=random) + 1).tolist()
    num_slots = num_rows + 2
    table = torch.full((num_slots, max(counts, default=0) + 2), num_blocks - 1, dtype=torch.int32)
    slots = torch.randperm(num_slots, generator=random)[:num_rows]
    for row, (count, length) in enumerate(zip(counts, seq_lens, strict=True)):
        blocks = [order.pop() for _ in range(count)]
        table[slots[row], :count] = torch.tensor(blocks, dtype=torch.int32)
        for index, block in enumerate(blocks):
            used = min(block_size, length - index * block_size)
            page = cache[block, layer, :, :, :used]
            page.copy_(torch.randn(page.shape, generator=random))
    shared = torch.zeros(2, num_rows, dtype=torch.int32)
    for first, size, tokens in groups:
        rows = slots[first : first + size]
        table[rows, : tokens // block_size] = table[rows[0], : tokens // block_size].clone()
        shared[0, first : first + size] = first
        shared[1, first : first + size] = tokens
    num_tokens = sum(query_lens)
    width = params.num_heads + 2 * params.num_kv_heads
    qkv = torch.randn(num_tokens, width, params.head_size, generator=random).to(dtype)
    starts = np.concatenate([[0], np.cumsum(query_lens)]).astype(np.int32)
    lengths = np.asarray(seq_lens, dtype=np.int32)
    batch = CommonAttentionMetadata(
        query_start_loc=torch.from_numpy(starts).to(device),
        seq_lens=torch.from_numpy(lengths).to(device),
        block_table=table.to(device),
        slots=slots.to(device),
        query_start_loc_cpu=starts,
        seq_lens_cpu=lengths,
        num_rows=num_rows,
        num_decode_rows=sum(1 for n in query_lens if n == 1),
        num_tokens=num_tokens,
        max_query_len=max(query_lens, default=0),
        max_seq_len=max(seq_lens, default=0),
        shared_prefixes=SharedPrefixRows(*shared.to(device)) if groups else None,
    )
    return Step(
        q=qkv.to(device)[:, : params.num_heads],
        kv=cache.to(device)[:, layer],
        batch=batch,
        rows=table[slots].to(device),
    )


def rows_of(step: Step, wanted: Sequence[tuple[int, int, int]]) -> tuple[Step, list[int]]:
    """(a step of rows of another, cut as told, their tokens in it); (row, query tokens, length)."""
    batch, device = step.batch, step.q.device
    starts, lengths = batch.query_start_loc_cpu, batch.seq_lens_cpu
    tokens: list[int] = []
    for row, query_len, seq_len in wanted:
        # The row's last token is at starts[row + 1] - 1 and its position lengths[row] - 1.
        end = int(starts[row + 1]) - (int(lengths[row]) - seq_len)
        tokens += range(end - query_len, end)
    query_lens = [query_len for _, query_len, _ in wanted]
    new_starts = np.concatenate([[0], np.cumsum(query_lens)]).astype(np.int32)
    new_lengths = np.asarray([seq_len for _, _, seq_len in wanted], dtype=np.int32)
    part = dataclasses.replace(
        batch,
        query_start_loc=torch.from_numpy(new_starts).to(device),
        seq_lens=torch.from_numpy(new_lengths).to(device),
        slots=batch.slots[[row for row, _, _ in wanted]],
        query_start_loc_cpu=new_starts,
        seq_lens_cpu=new_lengths,
        num_rows=len(wanted),
        num_tokens=int(new_starts[-1]),
        max_query_len=max(query_lens),
        max_seq_len=int(new_lengths.max()),
    )
    return dataclasses.replace(step, q=step.q[tokens], batch=part), tokens


def small_params(
    num_heads: int = 6,
    num_kv_heads: int = 2,
    head_size: int = 16,
    window: int | None = None,
    **more,
) -> AttentionParams:
    return AttentionParams(
        scale=head_size**-0.5,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        sliding_window=window,
        **more,
    )


def expected(step: Step, params: AttentionParams) -> torch.Tensor:
    """What the oracle makes of a step."""
    return paged_attention(
        step.q,
        step.kv,
        step.batch.query_start_loc,
        step.batch.seq_lens,
        step.rows,
        params.scale,
        params.sliding_window,
        params.soft_cap,
        alibi_slopes=params.alibi_slopes,
    )
