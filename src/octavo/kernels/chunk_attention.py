"""Attention of long prompt chunks by cuDNN, which torch brings along, over keys out of the pages.

On an H200 cuDNN reaches 580 TFLOP/s on a causal chunk of 8k tokens and 690 on keys before it, where
the Triton kernel reaches 480. It wants contiguous keys, so they are gathered first, which costs a
hundredth of the attention. It also builds a plan for every new shape, 40 to 200 ms on the host, so
only shapes that were warmed up are used. A chunk is computed in two parts that are merged by their
softmax sums: the keys before it, which all of its queries see, and a causal square.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from octavo.utils.misc import next_power_of_2, round_up

# q[1, Hq, n, D], k and v[1, Hkv, m, D], whether the mask is causal, scale -> output like q and
# the natural logarithm of the softmax sums, [1, Hq, n] or [1, Hq, n, 1] float32.
Attention = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor, bool, float], tuple[torch.Tensor, torch.Tensor]
]

UNIT = 4096  # tokens: the shapes used are multiples of it
MIN_QUERY_LEN = 2 * UNIT * 15 // 16
_GATHER_TOKENS = 64
_MERGE_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Chunk:
    """A row's tokens in a step: `query_len` of them from `first_token`, behind `history` keys."""

    row: int
    first_token: int
    query_len: int
    history: int
    square: int  # queries and keys of the causal part, rounded up


def chunk_of(row: int, first_token: int, query_len: int, seq_len: int) -> Chunk | None:
    """The chunk, or None where its shape doesn't suit: too short, or too much to round up."""
    history, square = seq_len - query_len, round_up(query_len, UNIT)
    if query_len < MIN_QUERY_LEN or query_len * 16 < square * 15 or history % UNIT:
        return None
    return Chunk(row, first_token, query_len, history, square)


def chunk_shapes(max_num_tokens: int, max_model_len: int) -> list[tuple[int, int]]:
    """(square, history) of the chunks that long prompts are cut into, largest steps first."""
    budget = max_num_tokens // UNIT * UNIT
    return [
        (square, history)
        for square in range(budget, MIN_QUERY_LEN, -UNIT)
        for history in range(0, max_model_len - square + 1, budget)
    ]


def cudnn_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The `Attention` of cuDNN."""
    result = torch.ops.aten._scaled_dot_product_cudnn_attention(
        q, k, v, None, True, 0.0, is_causal, scale=scale
    )
    return result[0], result[1]


@triton.jit(
    do_not_specialize=["row", "seq_len", "num_tokens"],
    do_not_specialize_on_alignment=["slots_ptr"],
)
def _gather_kernel(
    kv_ptr,
    slots_ptr,
    block_table_ptr,
    out_ptr,
    row,
    seq_len,
    num_tokens,
    stride_block,
    stride_table,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """Program (tile of tokens, head, keys or values)."""
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    head = tl.program_id(1)
    side = tl.program_id(2)
    dims = tl.arange(0, HEAD_PADDED)
    there = token < seq_len
    table = block_table_ptr + tl.load(slots_ptr + row).to(tl.int64) * stride_table
    block = tl.load(table + token // BLOCK_SIZE, mask=there, other=0).to(tl.int64)
    rows = kv_ptr + block * stride_block
    rows += ((side * NUM_KV_HEADS + head) * BLOCK_SIZE + token % BLOCK_SIZE) * HEAD_SIZE
    dim_ok = (dims < HEAD_SIZE)[None, :]
    values = tl.load(rows[:, None] + dims[None, :], mask=there[:, None] & dim_ok, other=0.0)
    line = (side * NUM_KV_HEADS + head).to(tl.int64) * num_tokens + token
    out_rows = out_ptr + line * HEAD_SIZE
    mask = (token < num_tokens)[:, None] & dim_ok
    tl.store(out_rows[:, None] + dims[None, :], values, mask=mask)


@triton.jit(
    do_not_specialize=["num_tokens", "near_head", "far_head", "sums_near", "sums_far"],
    do_not_specialize_on_alignment=["near_sums_ptr", "far_sums_ptr"],
)
def _merge_kernel(
    near_ptr,
    near_sums_ptr,
    far_ptr,
    far_sums_ptr,
    out_ptr,
    num_tokens,
    near_head,
    near_token,
    far_head,
    far_token,
    sums_near,
    sums_far,
    stride_out,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    TOKENS: tl.constexpr,
    HAS_FAR: tl.constexpr,
):
    """Program (tile of tokens, head): out = near and far weighted by their softmax sums."""
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    head = tl.program_id(1).to(tl.int64)
    dims = tl.arange(0, HEAD_PADDED)
    there = token < num_tokens
    mask = there[:, None] & (dims < HEAD_SIZE)[None, :]
    near_rows = near_ptr + head * near_head + token.to(tl.int64) * near_token
    value = tl.load(near_rows[:, None] + dims[None, :], mask=mask, other=0.0).to(tl.float32)
    if HAS_FAR:
        far_rows = far_ptr + head * far_head + token.to(tl.int64) * far_token
        far = tl.load(far_rows[:, None] + dims[None, :], mask=mask, other=0.0).to(tl.float32)
        near_sum = tl.load(near_sums_ptr + head * sums_near + token, mask=there)
        far_sum = tl.load(far_sums_ptr + head * sums_far + token, mask=there)
        weight = 1.0 / (1.0 + tl.exp(far_sum - near_sum))
        value = value * weight[:, None] + far * (1.0 - weight)[:, None]
    out_rows = out_ptr + token.to(tl.int64) * stride_out + head * HEAD_SIZE
    tl.store(out_rows[:, None] + dims[None, :], value.to(out_ptr.dtype.element_ty), mask=mask)


def gather_pages(
    kv: torch.Tensor,
    slots: torch.Tensor,
    block_table: torch.Tensor,
    row: int,
    seq_len: int,
    num_tokens: int,
) -> torch.Tensor:
    """Keys and values of a row, [2, Hkv, num_tokens, D]; zero from `seq_len` on."""
    _, _, num_kv_heads, block_size, head_size = kv.shape
    out = torch.empty((2, num_kv_heads, num_tokens, head_size), dtype=kv.dtype, device=kv.device)
    _gather_kernel[(triton.cdiv(num_tokens, _GATHER_TOKENS), num_kv_heads, 2)](
        kv,
        slots,
        block_table,
        out,
        row,
        seq_len,
        num_tokens,
        kv.stride(0),
        block_table.stride(0),
        NUM_KV_HEADS=num_kv_heads,
        HEAD_SIZE=head_size,
        HEAD_PADDED=next_power_of_2(head_size),
        BLOCK_SIZE=block_size,
        TOKENS=_GATHER_TOKENS,
        num_warps=4,
    )
    return out


def _padded_queries(q: torch.Tensor, num_tokens: int, num_kv_heads: int) -> torch.Tensor:
    """q[n, Hq, D] with zeros up to `num_tokens`, laid out as queries packed with keys and values.

    That is how most models have them, and then nothing is copied. Strides are a part of the shapes
    that are warm, so there is but one layout.
    """
    count, num_heads, head_size = q.shape
    packed = num_heads + 2 * num_kv_heads
    if count == num_tokens and q.stride() == (packed * head_size, head_size, 1):
        return q
    padded = q.new_zeros((num_tokens, packed, head_size))[:, :num_heads]
    padded[:count] = q
    return padded


def _near_and_far(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    history: int,
    scale: float,
    attention: Attention,
) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """The two parts of a chunk; without history the second is the first again."""
    queries = q.transpose(0, 1).unsqueeze(0)
    near = attention(queries, keys[:, :, history:], values[:, :, history:], True, scale)
    if not history:
        return near, near
    return near, attention(queries, keys[:, :, :history], values[:, :, :history], False, scale)


def chunk_attention(
    q: torch.Tensor,
    kv: torch.Tensor,
    out: torch.Tensor,
    slots: torch.Tensor,
    block_table: torch.Tensor,
    chunk: Chunk,
    *,
    scale: float,
    attention: Attention = cudnn_attention,
) -> None:
    """Attention of one chunk, written to its tokens of out.

    q[T, Hq, D] and out[T, Hq, D] with contiguous heads; kv: [num_blocks, 2, Hkv, block_size, D],
    contiguous but for the first dimension; block_table[S, max_blocks] and slots[R] as in
    CommonAttentionMetadata. Lengths come from the host, so a call can't be replayed with others.
    The square's queries behind the chunk's own are zeros, and nobody reads what they give.
    """
    _, num_heads, head_size = q.shape
    tokens = slice(chunk.first_token, chunk.first_token + chunk.query_len)
    padded = _padded_queries(q[tokens], chunk.square, num_kv_heads=kv.shape[2])
    seq_len = chunk.history + chunk.query_len
    keys, values = gather_pages(
        kv, slots, block_table, chunk.row, seq_len, chunk.history + chunk.square
    ).unsqueeze(1)
    (near, near_sums), (far, far_sums) = _near_and_far(
        padded, keys, values, chunk.history, scale, attention
    )
    _merge_kernel[(triton.cdiv(chunk.query_len, _MERGE_TOKENS), num_heads)](
        near,
        near_sums,
        far,
        far_sums,
        out[tokens],
        chunk.query_len,
        near.stride(1),
        near.stride(2),
        far.stride(1),
        far.stride(2),
        near_sums.stride(1),
        far_sums.stride(1),
        out.stride(0),
        HEAD_SIZE=head_size,
        HEAD_PADDED=next_power_of_2(head_size),
        TOKENS=_MERGE_TOKENS,
        HAS_FAR=chunk.history > 0,
        num_warps=4,
    )


def warm_up(
    square: int,
    history: int,
    heads: tuple[int, int, int],
    dtype: torch.dtype,
    device: torch.device,
    attention: Attention = cudnn_attention,
) -> None:
    """Let the library build its plans for chunks of a shape, in the thread that will use them.

    heads: query heads, KV heads and the head size.
    """
    num_heads, num_kv_heads, head_size = heads
    nothing = torch.empty((0, num_heads, head_size), dtype=dtype, device=device)
    q = _padded_queries(nothing, square, num_kv_heads)
    shape = (2, num_kv_heads, history + square, head_size)
    keys, values = torch.zeros(shape, dtype=dtype, device=device).unsqueeze(1)
    _near_and_far(q, keys, values, history, 1.0, attention)
