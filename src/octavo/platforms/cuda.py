"""NVIDIA GPUs through torch.cuda."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from octavo.platforms.interface import Event
from octavo.types.platform_info import PlatformInfo

# A context with its libraries takes 620 to 690 MiB on an H200; the driver counts it apart.
_CONTEXT_BYTES = 768 << 20


class CudaPlatform:
    """One CUDA device and a side stream for copies to the host."""

    def __init__(self, info: PlatformInfo) -> None:
        self.device = torch.device("cuda", 0)
        torch.cuda.set_device(self.device)
        # fp32 runs in fp32: the tf32 default of some builds would break exact comparisons.
        torch.backends.cuda.matmul.allow_tf32 = False
        self._copy_stream = torch.cuda.Stream(self.device)

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of the device, other processes' use included."""
        free, total = torch.cuda.mem_get_info(self.device)
        return int(free), int(total)

    def held_memory(self) -> int:
        """What torch's allocator has taken, and the context beside it."""
        return torch.cuda.memory_reserved(self.device) + _CONTEXT_BYTES

    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A pinned tensor."""
        return torch.empty(shape, dtype=dtype, pin_memory=True)

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A zeroed tensor in device memory."""
        return torch.zeros(shape, dtype=dtype, device=self.device)

    @contextlib.contextmanager
    def copy_stream(self) -> Iterator[None]:
        """A side stream behind the compute stream's queue."""
        self._copy_stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._copy_stream):
            yield

    def wait_for_copies(self) -> None:
        """The compute stream waits for the side stream."""
        torch.cuda.current_stream(self.device).wait_stream(self._copy_stream)

    def record_event(self) -> Event:
        """An event on the current stream."""
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.device))
        return event

    def synchronize(self) -> None:
        """Wait for every stream of the device."""
        torch.cuda.synchronize(self.device)
