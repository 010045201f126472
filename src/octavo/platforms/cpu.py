"""The CPU as a device: everything is synchronous, copies are aliases."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import numpy as np
import psutil
import torch

from octavo.platforms.interface import Event
from octavo.types.platform_info import PlatformInfo
from octavo.utils import envs


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
        self._info = info

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of RAM this process may use."""
        available = psutil.virtual_memory().available
        return min(available, self._info.total_memory), self._info.total_memory

    def held_memory(self) -> int:
        """Resident bytes of this process."""
        return int(psutil.Process().memory_info().rss)

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

    def wait_for_copies(self) -> None:
        """Copies are done when they are made."""

    def record_event(self) -> Event:
        """An event that has already happened."""
        return _DONE

    def synchronize(self) -> None:
        """Nothing is ever outstanding."""
