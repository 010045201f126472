"""GEMM for few rows: stream the weight through the multiprocessors at the memory's speed.

One row is a GEMV of plain multiply-adds. Several rows are a dot whose tall side is the weight, so
that no part of a matrix instruction is wasted on rows that aren't there. Where tiles are too few
to fill the device K is split, and the last program to finish a tile adds the parts in the order of
K: results don't depend on timing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from octavo.kernels.launch import launch_options, start_dependents, wait_for_inputs
from octavo.utils.misc import cdiv, next_power_of_2

MAX_TILES = 1 << 14  # tiles of a GEMM whose K is split: the length of `arrivals`
_VECTOR = 8  # 2-byte elements of one load


@dataclass(frozen=True, slots=True)
class GemvConfig:
    """How to compute one row: block_n weight rows per program, all warps along the row."""

    block_n: int
    num_warps: int


@dataclass(frozen=True, slots=True)
class GemmConfig:
    """How to compute several rows: tiles of block_m rows by block_n weight rows by block_k."""

    block_m: int
    block_n: int
    block_k: int
    split_k: int
    num_warps: int
    num_stages: int


@triton.jit
def _gemv_kernel(
    x_ptr,
    w_ptr,
    bias_ptr,
    out_ptr,
    N,
    K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    VECTOR: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PDL: tl.constexpr,
):
    """out[n] = w[n] . x for BLOCK_N rows n; BLOCK_K divides K."""
    start_dependents(PDL)
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    # Rows past the end repeat the last one; their results are not stored.
    row = tl.minimum(rows, N - 1).to(tl.int64)
    # Tiles are [chunk of K, row, element of the chunk]: Triton then lays a warp along K, and the
    # sum over a chunk stays in a thread's registers.
    at = tl.arange(0, BLOCK_K // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    w_ptrs = w_ptr + row[None, :, None] * K + at[:, None, :]
    # The weight doesn't depend on earlier kernels: its first tile is on its way while they end.
    w = tl.load(w_ptrs, eviction_policy="evict_first")
    wait_for_inputs(PDL)
    acc = tl.zeros((BLOCK_K // VECTOR, BLOCK_N), tl.float32)
    for k in tl.static_range(0, K, BLOCK_K):
        if k > 0:
            w = tl.load(w_ptrs + k, eviction_policy="evict_first")
        x = tl.load(x_ptr + k + at).to(tl.float32)[:, None, :]
        acc += tl.sum(w.to(tl.float32) * x, axis=2)
    result = tl.sum(acc, axis=0)
    if HAS_BIAS:
        result += tl.load(bias_ptr + rows, mask=rows < N, other=0.0).to(tl.float32)
    tl.store(out_ptr + rows, result.to(out_ptr.dtype.element_ty), mask=rows < N)


@triton.jit(
    do_not_specialize=["M"],
    do_not_specialize_on_alignment=["arrivals_ptr"],
)
def _gemm_kernel(
    x_ptr,
    w_ptr,
    bias_ptr,
    out_ptr,
    partials_ptr,
    arrivals_ptr,
    M,
    N,
    K,
    stride_x,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    EVEN_K: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PDL: tl.constexpr,
):
    """Program (tile of N, tile of M, part of K): out[m, n] = x[m] . w[n]."""
    start_dependents(PDL)
    tile_n = tl.program_id(0)
    tile_m = tl.program_id(1)
    part = tl.program_id(2)
    k_share = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K) * BLOCK_K
    k_begin = part * k_share
    k_end = tl.minimum(k_begin + k_share, K)
    rows_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    rows_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    at_k = tl.arange(0, BLOCK_K)
    # Rows past the end repeat the last one; their results are not stored.
    w_rows = w_ptr + tl.minimum(rows_n, N - 1).to(tl.int64) * K
    x_rows = x_ptr + tl.minimum(rows_m, M - 1).to(tl.int64) * stride_x
    w_ptrs = w_rows[:, None] + at_k[None, :]
    x_ptrs = x_rows[:, None] + at_k[None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for k in range(k_begin, k_end, BLOCK_K):
        if EVEN_K:
            w = tl.load(w_ptrs + k)
            x = tl.load(x_ptrs + k)
        else:
            inside = (k + at_k < K)[None, :]
            w = tl.load(w_ptrs + k, mask=inside, other=0.0)
            x = tl.load(x_ptrs + k, mask=inside, other=0.0)
        acc = tl.dot(w, tl.trans(x), acc)

    if SPLIT_K == 1:
        _store_tile(out_ptr, bias_ptr, acc, rows_m, rows_n, M, N, HAS_BIAS)
    else:
        tile = tile_m * tl.num_programs(0) + tile_n
        SIZE: tl.constexpr = BLOCK_N * BLOCK_M
        inner = tl.arange(0, BLOCK_N)[:, None] * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
        parts = partials_ptr + (tile * SPLIT_K).to(tl.int64) * SIZE + inner
        tl.store(parts + part * SIZE, acc)
        # All threads have written before one of them announces it.
        tl.debug_barrier()
        arrived = tl.atomic_add(arrivals_ptr + tile, 1, sem="acq_rel", scope="gpu")
        if arrived == SPLIT_K - 1:
            acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
            for other in tl.static_range(SPLIT_K):
                # Other programs wrote these: read L2, not this multiprocessor's L1.
                acc += tl.load(parts + other * SIZE, cache_modifier=".cg")
            _store_tile(out_ptr, bias_ptr, acc, rows_m, rows_n, M, N, HAS_BIAS)
            tl.store(arrivals_ptr + tile, 0)


@triton.jit
def _store_tile(out_ptr, bias_ptr, acc, rows_m, rows_n, M, N, HAS_BIAS: tl.constexpr):
    if HAS_BIAS:
        acc += tl.load(bias_ptr + rows_n, mask=rows_n < N, other=0.0).to(tl.float32)[:, None]
    out_ptrs = out_ptr + rows_m[None, :].to(tl.int64) * N + rows_n[:, None]
    mask = (rows_n < N)[:, None] & (rows_m < M)[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=mask)


def stream_gemm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    config: GemvConfig | GemmConfig,
    arrivals: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    pdl: bool = False,
) -> torch.Tensor:
    """x[M, K] @ weight[N, K].T + bias[N] -> [M, N] in 16-bit types, summed in fp32.

    weight is contiguous, x has contiguous rows; a GemvConfig is for M = 1. `arrivals`:
    [MAX_TILES] int32 zeros, which are zero again when the call is done; calls that may overlap
    need arrays of their own.
    """
    num_rows, inner = x.shape
    num_out = weight.shape[0]
    if out is None:
        out = torch.empty((num_rows, num_out), dtype=x.dtype, device=x.device)
    if isinstance(config, GemvConfig):
        _gemv_kernel[(cdiv(num_out, config.block_n),)](
            x,
            weight,
            weight if bias is None else bias,
            out,
            num_out,
            inner,
            BLOCK_N=config.block_n,
            BLOCK_K=config.num_warps * 32 * _VECTOR,
            VECTOR=_VECTOR,
            HAS_BIAS=bias is not None,
            PDL=pdl,
            num_warps=config.num_warps,
            **launch_options(pdl),
        )
        return out
    tiles_n, tiles_m = cdiv(num_out, config.block_n), cdiv(num_rows, config.block_m)
    partials = arrivals
    if config.split_k > 1:
        size = tiles_n * tiles_m * config.split_k * config.block_n * config.block_m
        partials = torch.empty(size, dtype=torch.float32, device=x.device)
    _gemm_kernel[(tiles_n, tiles_m, config.split_k)](
        x,
        weight,
        weight if bias is None else bias,
        out,
        partials,
        arrivals,
        num_rows,
        num_out,
        inner,
        x.stride(0),
        BLOCK_M=config.block_m,
        BLOCK_N=config.block_n,
        BLOCK_K=config.block_k,
        SPLIT_K=config.split_k,
        EVEN_K=inner % config.block_k == 0,
        HAS_BIAS=bias is not None,
        PDL=pdl,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
    return out


def default_config(num_rows: int, num_out: int, inner: int) -> GemvConfig | GemmConfig:
    """A configuration for a shape nobody has measured."""
    for num_warps in (8, 4, 2, 1):
        if num_rows == 1 and inner % (num_warps * 32 * _VECTOR) == 0:
            return GemvConfig(block_n=4, num_warps=num_warps)
    block_m = max(next_power_of_2(num_rows), 16)
    split_k = 1 if num_out > 4096 else 2 if inner > num_out // 2 else 4
    return GemmConfig(block_m, 64, 128, split_k, num_warps=4, num_stages=4)
