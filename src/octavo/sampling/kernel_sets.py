"""SAMPLING_KERNELS: the device functions of sampling, by device type."""

from __future__ import annotations

from collections.abc import Callable

from octavo.sampling.interface import SamplingKernels
from octavo.utils.registry import Registry

SAMPLING_KERNELS: Registry[Callable[[], SamplingKernels]] = Registry(
    "sampling kernels",
    {
        "cpu": "octavo.kernels.cpu.sampling:cpu_sampling",
        "cuda": "octavo.kernels.triton_set:triton_sampling",
    },
)
