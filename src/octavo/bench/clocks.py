"""ClockSampler: a GPU's clocks while something runs, asked of NVML, which any user may read."""

from __future__ import annotations

import statistics
import threading
from types import TracebackType
from typing import Any, Self

import pynvml

_INTERVAL = 0.25  # seconds between two readings


def driver_facts() -> dict[str, Any]:
    """Driver version, and each GPU's name, highest clocks and power limit; {} without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        gpus = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            gpus.append(
                {
                    "name": str(pynvml.nvmlDeviceGetName(handle)),
                    "max_sm_mhz": _read(pynvml.nvmlDeviceGetMaxClockInfo, handle, "SM"),
                    "max_memory_mhz": _read(pynvml.nvmlDeviceGetMaxClockInfo, handle, "MEM"),
                    "power_limit_w": _read(pynvml.nvmlDeviceGetPowerManagementLimit, handle),
                }
            )
        return {"driver": str(pynvml.nvmlSystemGetDriverVersion()), "gpus": gpus}
    except pynvml.NVMLError:
        return {}
    finally:
        pynvml.nvmlShutdown()


class ClockSampler:
    """`with ClockSampler() as clocks: ...`, then `clocks.summary()`; without a GPU it is empty."""

    def __init__(self) -> None:
        self._samples: list[tuple[int, int]] = []  # SM and memory clock in MHz
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="clocks", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def summary(self) -> dict[str, int]:
        """Lowest and median SM clock and median memory clock, in MHz."""
        if not self._samples:
            return {}
        sm, memory = zip(*self._samples, strict=True)
        return {
            "sm_mhz_min": min(sm),
            "sm_mhz_median": round(statistics.median(sm)),
            "memory_mhz_median": round(statistics.median(memory)),
        }

    def _sample(self) -> None:
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            while not self._stop.wait(_INTERVAL):
                sm = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
                memory = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)
                self._samples.append((sm, memory))
        except pynvml.NVMLError:
            return
        finally:
            pynvml.nvmlShutdown()


def _read(function: Any, handle: Any, clock: str | None = None) -> int | None:
    """A value, in MHz or W; None where the device does not say."""
    try:
        if clock is None:
            return int(function(handle)) // 1000
        return int(function(handle, getattr(pynvml, f"NVML_CLOCK_{clock}")))
    except pynvml.NVMLError:
        return None
