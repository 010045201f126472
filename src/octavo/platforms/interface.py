"""Platform: the seam for device memory, streams and events, chosen once when a worker is built."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch

from octavo.types.platform_info import PlatformInfo
from octavo.utils.registry import Registry


class Event(Protocol):
    """A point in a device's queue of work."""

    def synchronize(self) -> None:
        """Block the host until the work before the event is done."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes of a device that a process holds."""

    tensors: int  # now
    peak: int  # the most that tensors took since forget_peak
    reserved: int  # what the allocator holds, for the tensors that there were at the peak
    outside: int  # beside it: the runtime, its libraries, graphs

    @property
    def total(self) -> int:
        """Everything."""
        return self.reserved + self.outside


class Platform(Protocol):
    """One kind of device, as the worker sees it."""

    device: torch.device

    def __init__(self, info: PlatformInfo) -> None: ...

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of the device."""
        ...

    def memory_use(self) -> MemoryUse:
        """What of the device's memory this process holds."""
        ...

    def forget_peak(self) -> None:
        """Give back what no tensor uses and let the peak begin anew."""
        ...

    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised host tensor from which copies to the device are asynchronous."""
        ...

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A large zeroed tensor on the device (the KV cache)."""
        ...

    def copy_stream(self) -> AbstractContextManager[None]:
        """Run the body on a side stream that starts after the work queued so far."""
        ...

    def own_stream(self) -> AbstractContextManager[None]:
        """Run the body, in a thread of its own, on a stream of its own, and wait for that."""
        ...

    def wait_for_copies(self) -> None:
        """Let the current stream continue only behind what the side stream has been given."""
        ...

    def record_event(self) -> Event:
        """An event at the end of the current stream's queue."""
        ...

    def synchronize(self) -> None:
        """Wait for the device; for start-up and shutdown, never for a step."""
        ...


PLATFORMS: Registry[type[Platform]] = Registry(
    "platform",
    {
        "cpu": "octavo.platforms.cpu:CpuPlatform",
        "cuda": "octavo.platforms.cuda:CudaPlatform",
    },
)
