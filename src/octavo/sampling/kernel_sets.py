"""SAMPLING_KERNELS: the device functions of sampling, by device type."""

from __future__ import annotations

from collections.abc import Callable

from octavo.kernels.reference import sampling as reference
from octavo.sampling.interface import SamplingKernels
from octavo.utils.registry import Registry


def reference_sampling() -> SamplingKernels:
    """Plain PyTorch, for every device."""
    return reference


SAMPLING_KERNELS: Registry[Callable[[], SamplingKernels]] = Registry(
    "sampling kernels",
    {
        "cpu": reference_sampling,
        "cuda": "octavo.kernels.triton_set:triton_sampling",
    },
)
