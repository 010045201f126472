"""Per-head RMSNorm of q and k, rotary embedding and the write of K and V to the cache, at once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from octavo.kernels.launch import launch_options, start_dependents, wait_for_inputs
from octavo.utils.misc import next_power_of_2

# Tokens of a program: one while programs are too few to fill the device, else several.
_MANY_TOKENS = 256
_TOKENS_PER_PROGRAM = 4


@triton.jit
def _norm_and_rotate(
    rows,
    row_mask,
    positions,
    cos_sin_ptr,
    weight_ptr,
    eps,
    HEAD_SIZE: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
    IS_NEOX: tl.constexpr,
    HAS_NORM: tl.constexpr,
):
    """Heads at pointers rows[N] -> (first, second, rest) and their offsets and masks in a head.

    first[N, HALF] and second[N, HALF] are the rotated pairs, rest[N, REST] what isn't rotated.
    """
    dtype = rows.dtype.element_ty
    half: tl.constexpr = ROTARY_DIM // 2
    pair = tl.arange(0, HALF)
    if IS_NEOX:
        first_at = pair
        second_at = pair + half
    else:
        first_at = 2 * pair
        second_at = 2 * pair + 1
    rest_at = ROTARY_DIM + tl.arange(0, REST)
    pair_ok = pair < half
    rest_ok = rest_at < HEAD_SIZE
    pair_mask = row_mask[:, None] & pair_ok[None, :]
    rest_mask = row_mask[:, None] & rest_ok[None, :]

    first = tl.load(rows[:, None] + first_at[None, :], mask=pair_mask, other=0.0).to(tl.float32)
    second = tl.load(rows[:, None] + second_at[None, :], mask=pair_mask, other=0.0).to(tl.float32)
    rest = tl.zeros((rows.shape[0], REST), tl.float32)
    if HEAD_SIZE > ROTARY_DIM:
        rest += tl.load(rows[:, None] + rest_at[None, :], mask=rest_mask, other=0.0)
    if HAS_NORM:
        squares = tl.sum(first * first + second * second, axis=1) + tl.sum(rest * rest, axis=1)
        scale = tl.rsqrt(squares / HEAD_SIZE + eps)[:, None]
        first_weight = tl.load(weight_ptr + first_at, mask=pair_ok, other=0.0).to(tl.float32)
        second_weight = tl.load(weight_ptr + second_at, mask=pair_ok, other=0.0).to(tl.float32)
        rest_weight = tl.load(weight_ptr + rest_at, mask=rest_ok, other=0.0).to(tl.float32)
        # Rounded as if the norm were a kernel of its own.
        first = (first * scale * first_weight[None, :]).to(dtype).to(tl.float32)
        second = (second * scale * second_weight[None, :]).to(dtype).to(tl.float32)
        rest = rest * scale * rest_weight[None, :]
    angles = cos_sin_ptr + positions[:, None] * ROTARY_DIM + pair[None, :]
    cos = tl.load(angles, mask=pair_mask, other=0.0).to(tl.float32)
    sin = tl.load(angles + half, mask=pair_mask, other=0.0).to(tl.float32)
    rotated_first = first * cos - second * sin
    rotated_second = second * cos + first * sin
    return rotated_first, rotated_second, rest, first_at, second_at, rest_at, pair_mask, rest_mask


@triton.jit(
    do_not_specialize=["num_tokens"],
    do_not_specialize_on_alignment=["positions_ptr", "slot_mapping_ptr"],
)
def _qk_norm_rope_cache_kernel(
    qkv_ptr,
    q_weight_ptr,
    k_weight_ptr,
    cos_sin_ptr,
    positions_ptr,
    slot_mapping_ptr,
    kv_ptr,
    stride_qkv,
    stride_block,
    num_tokens,
    eps,
    GROUP: tl.constexpr,
    GROUP_PADDED: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TOKENS: tl.constexpr,
    IS_NEOX: tl.constexpr,
    HAS_Q_NORM: tl.constexpr,
    HAS_K_NORM: tl.constexpr,
    PDL: tl.constexpr,
):
    """One program: TOKENS tokens of one KV head and the GROUP query heads that share it."""
    start_dependents(PDL)
    wait_for_inputs(PDL)
    head = tl.program_id(1)
    first_token = tl.program_id(0) * TOKENS
    dtype = qkv_ptr.dtype.element_ty

    q_row = tl.arange(0, TOKENS * GROUP_PADDED)
    q_token = first_token + q_row // GROUP_PADDED
    q_head = q_row % GROUP_PADDED
    q_mask = (q_token < num_tokens) & (q_head < GROUP)
    q_rows = qkv_ptr + q_token.to(tl.int64) * stride_qkv + (head * GROUP + q_head) * HEAD_SIZE
    q_positions = tl.load(positions_ptr + q_token, mask=q_mask, other=0).to(tl.int64)
    first, second, rest, first_at, second_at, rest_at, pair_mask, rest_mask = _norm_and_rotate(
        q_rows,
        q_mask,
        q_positions,
        cos_sin_ptr,
        q_weight_ptr,
        eps,
        HEAD_SIZE,
        ROTARY_DIM,
        HALF,
        REST,
        IS_NEOX,
        HAS_Q_NORM,
    )
    tl.store(q_rows[:, None] + first_at[None, :], first.to(dtype), mask=pair_mask)
    tl.store(q_rows[:, None] + second_at[None, :], second.to(dtype), mask=pair_mask)
    if HAS_Q_NORM and HEAD_SIZE > ROTARY_DIM:
        tl.store(q_rows[:, None] + rest_at[None, :], rest.to(dtype), mask=rest_mask)

    token = first_token + tl.arange(0, TOKENS)
    in_step = token < num_tokens
    slot = tl.load(slot_mapping_ptr + token, mask=in_step, other=-1).to(tl.int64)
    written = slot >= 0
    positions = tl.load(positions_ptr + token, mask=written, other=0).to(tl.int64)
    k_rows = qkv_ptr + token.to(tl.int64) * stride_qkv
    k_rows += (NUM_KV_HEADS * GROUP + head) * HEAD_SIZE
    first, second, rest, first_at, second_at, rest_at, pair_mask, rest_mask = _norm_and_rotate(
        k_rows,
        written,
        positions,
        cos_sin_ptr,
        k_weight_ptr,
        eps,
        HEAD_SIZE,
        ROTARY_DIM,
        HALF,
        REST,
        IS_NEOX,
        HAS_K_NORM,
    )
    cache_dtype = kv_ptr.dtype.element_ty
    k_out = kv_ptr + (slot // BLOCK_SIZE) * stride_block
    k_out += (head * BLOCK_SIZE + slot % BLOCK_SIZE) * HEAD_SIZE
    tl.store(k_out[:, None] + first_at[None, :], first.to(cache_dtype), mask=pair_mask)
    tl.store(k_out[:, None] + second_at[None, :], second.to(cache_dtype), mask=pair_mask)
    if HEAD_SIZE > ROTARY_DIM:
        tl.store(k_out[:, None] + rest_at[None, :], rest.to(cache_dtype), mask=rest_mask)

    dims = tl.arange(0, HEAD_PADDED)
    v_mask = written[:, None] & (dims < HEAD_SIZE)[None, :]
    v_rows = k_rows + NUM_KV_HEADS * HEAD_SIZE
    v = tl.load(v_rows[:, None] + dims[None, :], mask=v_mask)
    v_out = k_out + NUM_KV_HEADS * BLOCK_SIZE * HEAD_SIZE
    tl.store(v_out[:, None] + dims[None, :], v.to(cache_dtype), mask=v_mask)


def qk_norm_rope_cache(
    qkv: torch.Tensor,
    q_norm_weight: torch.Tensor | None,
    k_norm_weight: torch.Tensor | None,
    eps: float,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_page: torch.Tensor,
    rotary_dim: int,
    is_neox: bool,
    *,
    pdl: bool = False,
    tokens_per_program: int | None = None,
) -> torch.Tensor:
    """Normalize and rotate q and k, write k and v to the cache; see QKNormRopeCacheKernel.

    Works in place: the result is q[T, Hq, D] as a view of `qkv`, whose k and v are left as they
    were. kv_page: [num_blocks, 2, Hkv, block_size, D], contiguous but for the first dimension.
    `tokens_per_program` (1 or 4) is chosen by the number of tokens unless it is given.
    """
    num_tokens, width = qkv.shape
    _, _, num_kv_heads, block_size, head_size = kv_page.shape
    num_heads = width // head_size - 2 * num_kv_heads
    group = num_heads // num_kv_heads
    if num_tokens:
        fitting = 1 if num_tokens <= _MANY_TOKENS else _TOKENS_PER_PROGRAM
        tokens = tokens_per_program or fitting
        _qk_norm_rope_cache_kernel[(triton.cdiv(num_tokens, tokens), num_kv_heads)](
            qkv,
            qkv if q_norm_weight is None else q_norm_weight,
            qkv if k_norm_weight is None else k_norm_weight,
            cos_sin,
            positions,
            slot_mapping,
            kv_page,
            qkv.stride(0),
            kv_page.stride(0),
            num_tokens,
            eps,
            GROUP=group,
            GROUP_PADDED=next_power_of_2(group),
            NUM_KV_HEADS=num_kv_heads,
            HEAD_SIZE=head_size,
            HEAD_PADDED=next_power_of_2(head_size),
            ROTARY_DIM=rotary_dim,
            HALF=next_power_of_2(rotary_dim // 2),
            REST=next_power_of_2(head_size - rotary_dim),
            BLOCK_SIZE=block_size,
            TOKENS=tokens,
            IS_NEOX=is_neox,
            HAS_Q_NORM=q_norm_weight is not None,
            HAS_K_NORM=k_norm_weight is not None,
            PDL=pdl,
            num_warps=1 if tokens == 1 else 4,
            **launch_options(pdl),
        )
    q: torch.Tensor = qkv[:, : num_heads * head_size].unflatten(1, (num_heads, head_size))
    return q
