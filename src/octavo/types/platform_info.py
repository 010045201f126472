"""PlatformInfo: the facts about the machine that configuration may depend on."""

from __future__ import annotations

import msgspec


class PlatformInfo(msgspec.Struct, frozen=True):
    """One machine as seen without torch (NVML, /proc, cgroups)."""

    device_type: str  # "cpu" or "cuda"
    device_name: str
    total_memory: int  # bytes of device memory (RAM within the cgroup on a CPU)
    free_memory: int  # bytes free now
    num_devices: int = 1
    capability: tuple[int, int] | None = None  # CUDA compute capability
    num_cpus: int = 1  # usable by this process (affinity and cgroup quota)
    cpu_flags: tuple[str, ...] = ()  # of "avx2", "avx512f", "avx512_bf16", "amx_bf16"
