"""What the Triton kernels share: dependent launches and facts of the device."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def start_dependents(PDL: tl.constexpr):
    """Let the next kernel of the stream start now; its own `wait_for_inputs` orders the data.

    Which kernels are dependents was measured on whole decode steps of an H200. Small kernels and
    the GEMV are: their launch, and the GEMV's first loads, pass behind the end of the kernel
    before. The GEMM of several rows and attention are not: a grid that just fills the device
    must find it empty, or its programs crowd on the multiprocessors that happen to be free. The
    GEMM lets the small kernel behind it start early; attention, before a GEMV, does not.
    """
    if PDL:
        gdc_launch_dependents()


@triton.jit
def wait_for_inputs(PDL: tl.constexpr):
    """Wait until everything the kernels before wrote can be read.

    Every program of a dependent calls it, also one without work: a later kernel takes the end of
    this one as proof that the ones before have ended too.
    """
    if PDL:
        gdc_wait()


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
