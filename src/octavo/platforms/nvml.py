"""The NVIDIA GPU this process will use, asked of the driver without creating a CUDA context."""

from __future__ import annotations

import os
from typing import Any

import pynvml

from octavo.platforms.detect import usable_cpus
from octavo.types.platform_info import PlatformInfo
from octavo.utils.logging import get_logger

logger = get_logger(__name__)


def detect_cuda() -> PlatformInfo | None:
    """The first device that CUDA_VISIBLE_DEVICES leaves, or None.

    Free memory is what no process holds now; total memory excludes what the driver reserves.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        logger.warning("the NVIDIA driver does not answer: %s", error)
        return None
    try:
        handles = _visible_handles(os.environ.get("CUDA_VISIBLE_DEVICES"))
        if not handles:
            return None
        memory = pynvml.nvmlDeviceGetMemoryInfo(handles[0], version=pynvml.nvmlMemory_v2)
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handles[0])
        return PlatformInfo(
            device_type="cuda",
            device_name=str(pynvml.nvmlDeviceGetName(handles[0])),
            total_memory=memory.total - memory.reserved,
            free_memory=memory.free,
            num_devices=len(handles),
            capability=(major, minor),
            num_cpus=usable_cpus(),
        )
    except pynvml.NVMLError as error:
        logger.warning("the NVIDIA driver fails to describe its devices: %s", error)
        return None
    finally:
        pynvml.nvmlShutdown()


def _visible_handles(visible: str | None) -> list[Any]:
    """NVML handles in the order CUDA numbers them; like CUDA, stops at the first unknown one."""
    if visible is None:
        count = pynvml.nvmlDeviceGetCount()
        return [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
    handles: list[Any] = []
    for name in visible.split(","):
        handle = _handle(name.strip())
        if handle is None:
            break
        handles.append(handle)
    return handles


def _handle(name: str) -> Any:
    """The device of an index or UUID ("GPU-...", also abbreviated; "MIG-..."), or None."""
    try:
        if name.isdigit():
            return pynvml.nvmlDeviceGetHandleByIndex(int(name))
        if name.startswith("MIG-"):
            return pynvml.nvmlDeviceGetHandleByUUID(name)
        for i in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(i)
            if name and str(pynvml.nvmlDeviceGetUUID(handle)).startswith(name):
                return handle
    except pynvml.NVMLError:
        return None
    return None
