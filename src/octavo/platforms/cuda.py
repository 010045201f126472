"""NVIDIA GPUs through torch.cuda."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from octavo.platforms.interface import Event, MemoryUse
from octavo.platforms.nvml import detect_cuda
from octavo.types.platform_info import PlatformInfo

# A context with its libraries takes 620 to 690 MiB on an H200, and graphs a few hundred more.
_LEAST_CONTEXT, _MOST_CONTEXT = 400 << 20, 2 << 30


class CudaPlatform:
    """One CUDA device and a side stream for copies to the host."""

    def __init__(self, info: PlatformInfo) -> None:
        self.device = torch.device("cuda", 0)
        # From before there was a context of ours, which makes a later figure too small, unless
        # another process has given something back since.
        found = detect_cuda()
        self._free_before = max((found or info).free_memory, info.free_memory)
        torch.cuda.set_device(self.device)
        # fp32 runs in fp32: the tf32 default of some builds would break exact comparisons.
        torch.backends.cuda.matmul.allow_tf32 = False
        self._copy_stream = torch.cuda.Stream(self.device)

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of the device, other processes' use included."""
        free, total = torch.cuda.mem_get_info(self.device)
        return int(free), int(total)

    def memory_use(self) -> MemoryUse:
        """What torch's allocator has taken, and what the device has lost beside it.

        The latter is the context, libraries, kernels and graphs; it is wrong by what other
        processes take or give back meanwhile, so it counts only within what was ever seen.
        """
        reserved = torch.cuda.memory_reserved(self.device)
        outside = self._free_before - self.memory()[0] - reserved
        return MemoryUse(
            tensors=torch.cuda.memory_allocated(self.device),
            peak=torch.cuda.max_memory_allocated(self.device),
            reserved=reserved,
            outside=min(max(outside, _LEAST_CONTEXT), _MOST_CONTEXT),
        )

    def forget_peak(self) -> None:
        """Empty the allocator's cache and its statistics."""
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)

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

    @contextlib.contextmanager
    def own_stream(self) -> Iterator[None]:
        """Run the body, in a thread of its own, on a new stream, and wait for that at the end."""
        stream = torch.cuda.Stream(self.device)
        with torch.cuda.device(self.device), torch.cuda.stream(stream):
            yield
            stream.synchronize()

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
