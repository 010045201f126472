"""The CPU as a device: everything is synchronous, copies are aliases."""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Iterator

import numpy as np
import psutil
import torch

from octavo.platforms.interface import Event, MemoryUse
from octavo.types.platform_info import PlatformInfo
from octavo.utils import envs

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc
_KEPT_BYTES = 1 << 30


class _DoneEvent:
    """CPU work is done when the call that queued it returns."""

    def synchronize(self) -> None:
        return None


_DONE = _DoneEvent()


class CpuPlatform:
    """Compute threads and memory of this machine's processor."""

    def __init__(self, info: PlatformInfo) -> None:
        self.device = torch.device("cpu")
        threads = envs.cpu_threads() or info.num_cpus
        torch.set_num_threads(threads)
        _keep_freed_memory()
        self._info = info

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of RAM this process may use."""
        available = psutil.virtual_memory().available
        return min(available, self._info.total_memory), self._info.total_memory

    def memory_use(self) -> MemoryUse:
        """Resident bytes of this process, tensors or not."""
        return MemoryUse(0, 0, 0, int(psutil.Process().memory_info().rss))

    def forget_peak(self) -> None:
        """The operating system keeps no peak."""

    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A plain tensor: the host is the device."""
        return torch.empty(shape, dtype=dtype)

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Zero pages that the operating system provides when they are first touched."""
        size = math.prod(shape) * dtype.itemsize
        # numpy asks for zeroed memory lazily, torch writes the zeros.
        return torch.from_numpy(np.zeros(size, dtype=np.uint8)).view(dtype).view(shape)

    @contextlib.contextmanager
    def copy_stream(self) -> Iterator[None]:
        """The CPU has one queue: the caller's."""
        yield

    @contextlib.contextmanager
    def own_stream(self) -> Iterator[None]:
        """Every thread has the processor for itself."""
        yield

    def wait_for_copies(self) -> None:
        """Copies are done when they are made."""

    def record_event(self) -> Event:
        """An event that has already happened."""
        return _DONE

    def synchronize(self) -> None:
        """Nothing is ever outstanding."""


def _keep_freed_memory() -> None:
    """Let the allocator keep what large tensors leave, as it keeps what small ones do.

    Otherwise each of them is new pages, which the operating system has to clear: a tenth of the
    time of a large step. Only glibc has the settings; elsewhere nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    for parameter in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
        mallopt(parameter, _KEPT_BYTES)
