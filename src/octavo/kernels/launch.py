"""What the Triton kernels share: dependent launches, L2 prefetch and facts of the device."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def start_dependents(PDL: tl.constexpr):
    """Let the next kernel of the stream start now; its own `wait_for_inputs` orders the data."""
    if PDL:
        gdc_launch_dependents()


@triton.jit
def wait_for_inputs(PDL: tl.constexpr):
    """Wait until everything the kernels before wrote can be read.

    Every program of a kernel calls it, also those without work: a later kernel takes the end of
    this one as proof that the ones before have ended too.
    """
    if PDL:
        gdc_wait()


@triton.jit
def prefetch_rows(
    ptr, row_stride, NUM_ROWS: tl.constexpr, ROW_BYTES: tl.constexpr, THREADS: tl.constexpr
):
    """Ask for the first ROW_BYTES of NUM_ROWS rows to be brought to L2; no thread waits for it.

    ptr: [..] 2-byte elements; row_stride in elements. THREADS (all of the program) share the
    rows evenly, so THREADS is a multiple of NUM_ROWS and every share one of 16 bytes.
    """
    PER_ROW: tl.constexpr = THREADS // NUM_ROWS
    SHARE: tl.constexpr = ROW_BYTES // PER_ROW
    thread = tl.arange(0, THREADS)
    rows = ptr + (thread // PER_ROW).to(tl.int64) * row_stride + (thread % PER_ROW) * (SHARE // 2)
    size = tl.full((THREADS,), SHARE, tl.int32)
    tl.inline_asm_elementwise(
        "{ cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0; }",
        "=r,l,r",
        [rows.to(tl.int64), size],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


def launch_options(pdl: bool) -> dict[str, bool]:
    """Launch keywords of a kernel that is, or is not, a programmatic dependent launch."""
    return {"launch_pdl": True} if pdl else {}


@functools.cache
def num_multiprocessors(device: torch.device) -> int:
    """Multiprocessors of a CUDA device; 4 for the CPU, where the interpreter runs programs."""
    if device.type != "cuda":
        return 4
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@functools.cache
def supports_pdl(device: torch.device) -> bool:
    """Whether the device has programmatic dependent launches (compute capability 9.0 on)."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
