"""GEMM of batch-invariant mode: a sum over K is the same whatever is computed beside it.

Every result is one chain of matrix instructions over K, 16 elements each, in ascending order from
zero. The weight is the tall side of all of them, so that a step of one row and a step of thousands
run the same kind of instruction (on Hopper wgmma, whose tall side is 64), and a tile may have any
size: it decides which results share an instruction, never what is added to what. K is not split.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from octavo.kernels.launch import start_dependents
from octavo.utils.misc import cdiv, next_power_of_2

_FEW_ROWS = 64  # up to here the weight's bytes decide, beyond it the arithmetic does
_TAIL_BLOCK_K = 64  # where K is no multiple of a larger block: one width of zeros at its end
_SHARED_BYTES = 200 << 10  # of a multiprocessor, for the stages of its programs
_GROUP = 8  # tiles of weight rows that run at a time, so that L2 holds what they share


@dataclass(frozen=True, slots=True)
class InvariantConfig:
    """A tile of block_m rows by step_n weight rows; results don't depend on any of it.

    The dot's tall side is block_n; with step_n below it, its other rows are zeros that nobody
    reads from memory, and more programs share a narrow weight.
    """

    block_m: int
    block_n: int
    step_n: int
    block_k: int
    num_warps: int
    num_stages: int


@triton.jit(
    do_not_specialize=["M"],
)
def _invariant_gemm_kernel(
    x_ptr,
    w_ptr,
    bias_ptr,
    out_ptr,
    M,
    N,
    K,
    stride_x,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    STEP_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    EVEN_K: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PDL: tl.constexpr,
):
    """out[m, n] = x[m] . w[n] for STEP_N of n and BLOCK_M of m."""
    start_dependents(PDL)
    tiles_n = tl.cdiv(N, STEP_N)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tile = tl.program_id(0)
    first_n = tile // (GROUP * tiles_m) * GROUP
    width = tl.minimum(tiles_n - first_n, GROUP)
    tile_n = first_n + tile % (GROUP * tiles_m) % width
    tile_m = tile % (GROUP * tiles_m) // width
    inner_n = tl.arange(0, BLOCK_N)
    rows_n = tile_n * STEP_N + inner_n
    rows_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    at_k = tl.arange(0, BLOCK_K)
    # Rows past the end repeat the last one; their results are not stored.
    w_ptrs = (w_ptr + tl.minimum(rows_n, N - 1).to(tl.int64) * K)[:, None] + at_k[None, :]
    x_ptrs = (x_ptr + tl.minimum(rows_m, M - 1).to(tl.int64) * stride_x)[:, None] + at_k[None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for k in range(0, K, BLOCK_K):
        if EVEN_K:
            x = tl.load(x_ptrs + k)
        else:
            x = tl.load(x_ptrs + k, mask=(k + at_k < K)[None, :], other=0.0)
        if EVEN_K and STEP_N == BLOCK_N:
            w = tl.load(w_ptrs + k)
        elif EVEN_K:
            w = tl.load(w_ptrs + k, mask=(inner_n < STEP_N)[:, None], other=0.0)
        else:
            inside = (inner_n < STEP_N)[:, None] & (k + at_k < K)[None, :]
            w = tl.load(w_ptrs + k, mask=inside, other=0.0)
        acc = tl.dot(w, tl.trans(x), acc, input_precision="ieee")
    mask_n = (rows_n < N) & (inner_n < STEP_N)
    if HAS_BIAS:
        acc += tl.load(bias_ptr + rows_n, mask=mask_n, other=0.0).to(tl.float32)[:, None]
    out_ptrs = out_ptr + rows_m[None, :].to(tl.int64) * N + rows_n[:, None]
    mask = mask_n[:, None] & (rows_m < M)[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=mask)


def invariant_gemm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    config: InvariantConfig,
    *,
    out: torch.Tensor | None = None,
    pdl: bool = False,
) -> torch.Tensor:
    """x[M, K] @ weight[N, K].T + bias[N] -> [M, N], summed in fp32 in the order of K.

    weight is contiguous, x has contiguous rows. Of two configurations with the same `block_k`, or
    both of whose `block_k` divide K, the results are equal bit for bit.
    """
    num_rows, inner = x.shape
    num_out = weight.shape[0]
    if out is None:
        out = torch.empty((num_rows, num_out), dtype=x.dtype, device=x.device)
    if num_rows:
        tiles = cdiv(num_out, config.step_n) * cdiv(num_rows, config.block_m)
        _invariant_gemm_kernel[(tiles,)](
            x,
            weight,
            weight if bias is None else bias,
            out,
            num_rows,
            num_out,
            inner,
            x.stride(0),
            BLOCK_M=config.block_m,
            BLOCK_N=config.block_n,
            STEP_N=config.step_n,
            BLOCK_K=config.block_k,
            GROUP=_GROUP,
            EVEN_K=inner % config.block_k == 0,
            HAS_BIAS=bias is not None,
            PDL=pdl and num_rows <= _FEW_ROWS,
            num_warps=config.num_warps,
            num_stages=config.num_stages,
        )
    return out


# fp32 is multiplied by scalar instructions: one tile for all, small enough for its registers.
_FP32 = InvariantConfig(32, 64, 64, 32, num_warps=4, num_stages=2)
# Where the end of K needs a mask, loads take registers that larger tiles don't have.
_TAIL_TILE = InvariantConfig(128, 128, 128, _TAIL_BLOCK_K, num_warps=8, num_stages=4)
# Tiles for many rows, with the arithmetic they sustain relative to the first.
_MANY_ROWS = (
    (1.0, InvariantConfig(256, 128, 128, 64, num_warps=8, num_stages=4)),
    (0.85, InvariantConfig(128, 128, 128, 64, num_warps=8, num_stages=4)),
    (0.7, InvariantConfig(128, 64, 64, 64, num_warps=4, num_stages=4)),
)


@functools.lru_cache(maxsize=4096)
def invariant_tile(
    num_rows: int, num_out: int, inner: int, itemsize: int, processors: int
) -> InvariantConfig:
    """The tile for x[num_rows, inner] times a weight[num_out, inner]: chosen for speed alone.

    `itemsize`: bytes of an element; `processors`: multiprocessors of the device.
    """
    if itemsize == 4:
        return _FP32
    if num_rows <= _FEW_ROWS:
        block_k = 128 if inner % 128 == 0 else _TAIL_BLOCK_K
        return _few_rows(max(next_power_of_2(num_rows), 16), num_out, block_k, processors)
    return _TAIL_TILE if inner % 64 else _many_rows(num_rows, num_out, processors)


def _few_rows(block_m: int, num_out: int, block_k: int, processors: int) -> InvariantConfig:
    """Narrow steps until every multiprocessor has one, then stages as far as memory goes."""
    step_n = 64
    while step_n > 16 and cdiv(num_out, step_n) * 10 < processors * 9:
        step_n //= 2
    stage = (64 + block_m) * block_k * 2
    resident = min(cdiv(cdiv(num_out, step_n), processors), 3)
    stages = min(max(_SHARED_BYTES // resident // stage, 3), 10)
    return InvariantConfig(block_m, 64, step_n, block_k, num_warps=4, num_stages=stages)


def _many_rows(num_rows: int, num_out: int, processors: int) -> InvariantConfig:
    """The tile that finishes first if its programs run in whole waves."""

    def cost(entry: tuple[float, InvariantConfig]) -> float:
        speed, config = entry
        tiles = cdiv(num_rows, config.block_m) * cdiv(num_out, config.block_n)
        return cdiv(tiles, processors) * config.block_m * config.block_n / speed

    return min(_MANY_ROWS, key=cost)[1]
