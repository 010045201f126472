"""GEMM for few rows: stream the weight through the multiprocessors at the memory's speed.

One row is a GEMV of plain multiply-adds. Several rows are a dot whose tall side is the weight, so
that no part of a matrix instruction is wasted on rows that aren't there; its work, all tiles along
all of K, is cut into equal shares, one per program of a grid that fills the device ("stream-K";
Osama et al., arXiv:2301.03598). A tile cut by a share's end leaves partial sums, and the last
program to finish one of its parts adds them in the order of K: results don't depend on timing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from octavo.kernels.launch import (
    launch_options,
    num_multiprocessors,
    start_dependents,
    start_dependents_early,
    wait_for_inputs,
)
from octavo.utils.misc import cdiv, next_power_of_2

MAX_TILES = 1 << 16  # tiles of one GEMM: the length of `arrivals`
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
    ctas_per_sm: int
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
    start_dependents_early(PDL)
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
    start_dependents(PDL)
    result = tl.sum(acc, axis=0)
    if HAS_BIAS:
        result += tl.load(bias_ptr + rows, mask=rows < N, other=0.0).to(tl.float32)
    tl.store(out_ptr + rows, result.to(out_ptr.dtype.element_ty), mask=rows < N)


@triton.jit
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
    EVEN_K: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PDL: tl.constexpr,
):
    """Program (share): its part of the line of all tiles' steps along K, in one loop."""
    start_dependents_early(PDL)
    share = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    steps = tl.cdiv(K, BLOCK_K)
    total = tl.cdiv(N, BLOCK_N) * tiles_m * steps
    per_share = tl.cdiv(total, tl.num_programs(0))
    begin = share * per_share
    stop = tl.minimum(begin + per_share, total)
    row_n = tl.arange(0, BLOCK_N)
    row_m = tl.arange(0, BLOCK_M)
    at_k = tl.arange(0, BLOCK_K)
    SIZE: tl.constexpr = BLOCK_N * BLOCK_M
    inner = row_n[:, None] * BLOCK_M + row_m[None, :]
    wait_for_inputs(PDL)
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for unit in range(begin, stop):
        tile = unit // steps
        k = (unit - tile * steps) * BLOCK_K
        rows_n = tile // tiles_m * BLOCK_N + row_n
        rows_m = tile % tiles_m * BLOCK_M + row_m
        # Rows past the end repeat the last one; their results are not stored.
        w_rows = w_ptr + tl.minimum(rows_n, N - 1).to(tl.int64) * K + k
        x_rows = x_ptr + tl.minimum(rows_m, M - 1).to(tl.int64) * stride_x + k
        if EVEN_K:
            w = tl.load(w_rows[:, None] + at_k[None, :])
            x = tl.load(x_rows[:, None] + at_k[None, :])
        else:
            inside = (k + at_k < K)[None, :]
            w = tl.load(w_rows[:, None] + at_k[None, :], mask=inside, other=0.0)
            x = tl.load(x_rows[:, None] + at_k[None, :], mask=inside, other=0.0)
        acc = tl.dot(w, tl.trans(x), acc)
        if ((unit + 1) % steps == 0) | (unit + 1 == stop):
            if (tile * steps >= begin) & (tile * steps + steps <= stop):
                _store_tile(out_ptr, bias_ptr, acc, rows_m, rows_n, M, N, HAS_BIAS)
            else:
                # share + tile counts the cuts before this part, so it numbers the parts.
                tl.store(partials_ptr + (share + tile).to(tl.int64) * SIZE + inner, acc)
            acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    start_dependents(PDL)

    # All threads have written before one of them announces it. A share cuts two tiles at most.
    tl.debug_barrier()
    first_tile = begin // steps
    last_tile = (stop - 1) // steps
    for end in tl.static_range(2):
        tile = last_tile if end == 1 else first_tile
        first_share = tile * steps // per_share
        num_parts = (tile * steps + steps - 1) // per_share - first_share + 1
        once = (begin < stop) & ((end == 0) | (first_tile != last_tile))
        if once & (num_parts > 1):
            arrived = tl.atomic_add(arrivals_ptr + tile, 1, sem="acq_rel", scope="gpu")
            if arrived == num_parts - 1:
                total_acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
                parts = partials_ptr + (first_share + tile).to(tl.int64) * SIZE + inner
                for part in range(num_parts):
                    # Others wrote these: read L2, not this multiprocessor's L1.
                    total_acc += tl.load(parts + part * SIZE, cache_modifier=".cg")
                rows_n = tile // tiles_m * BLOCK_N + row_n
                rows_m = tile % tiles_m * BLOCK_M + row_m
                _store_tile(out_ptr, bias_ptr, total_acc, rows_m, rows_n, M, N, HAS_BIAS)
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
    pdl: int = 0,
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
    tiles = cdiv(num_out, config.block_n) * cdiv(num_rows, config.block_m)
    shares = min(
        num_multiprocessors(x.device) * config.ctas_per_sm, tiles * cdiv(inner, config.block_k)
    )
    partials = torch.empty(
        (shares + tiles) * config.block_n * config.block_m, dtype=torch.float32, device=x.device
    )
    _gemm_kernel[(shares,)](
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
        EVEN_K=inner % config.block_k == 0,
        HAS_BIAS=bias is not None,
        PDL=pdl,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        **launch_options(pdl),
    )
    return out


def default_config(num_rows: int, inner: int) -> GemvConfig | GemmConfig:
    """A configuration for a shape nobody has measured."""
    for num_warps in (8, 4, 2, 1):
        if num_rows == 1 and inner % (num_warps * 32 * _VECTOR) == 0:
            return GemvConfig(block_n=4, num_warps=num_warps)
    block_m = max(next_power_of_2(num_rows), 16)
    return GemmConfig(block_m, 64, 128, ctas_per_sm=1, num_warps=4, num_stages=4)
