"""Machine facts without torch: NVML for a GPU, /proc and cgroups for the processor and its RAM."""

from __future__ import annotations

import importlib.metadata
import os
import platform as host
from collections.abc import Callable
from pathlib import Path

from octavo.types.errors import ConfigError
from octavo.types.platform_info import PlatformInfo
from octavo.utils.logging import get_logger
from octavo.utils.registry import Registry

logger = get_logger(__name__)

_CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
_NVIDIA_DEVICE = Path("dev/nvidiactl")

# The NVML binding is imported only on machines with an NVIDIA driver.
GPU_DETECTORS: Registry[Callable[[], PlatformInfo | None]] = Registry(
    "GPU detector", {"cuda": "octavo.platforms.nvml:detect_cuda"}
)


def detect_platform(prefer: str | None = None, root: Path = Path("/")) -> PlatformInfo:
    """The device to run on: `prefer` ("cpu" or "cuda"), or a usable GPU, or else the CPU.

    `root` is where /proc, /sys and /dev are found. Raises ConfigError when "cuda" is asked for
    and can't be used, with the reason.
    """
    if prefer == "cpu":
        return detect_cpu(root)
    if prefer not in (None, "cuda"):
        raise ConfigError(f"device={prefer!r}: expected cpu or cuda")
    found, obstacle = _detect_gpu(root)
    if found is not None:
        return found
    if prefer == "cuda":
        raise ConfigError(f"device='cuda': {obstacle}; use --device cpu")
    if obstacle != _NO_DRIVER:
        logger.warning("running on the CPU: %s", obstacle)
    return detect_cpu(root)


_NO_DRIVER = "there is no NVIDIA driver"


def _detect_gpu(root: Path) -> tuple[PlatformInfo | None, str]:
    """(GPU, "") or (None, why there is none)."""
    if not (root / _NVIDIA_DEVICE).exists():
        return None, _NO_DRIVER
    if torch_version().endswith("+cpu"):
        return None, "the installed torch is a CPU build; install the CUDA build"
    found = GPU_DETECTORS.get("cuda")()
    return found, "" if found else "the NVIDIA driver shows no usable device"


def torch_version() -> str:
    """The installed torch's version ("2.11.0+cpu"), read without importing it; "" for none."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def detect_cpu(root: Path = Path("/")) -> PlatformInfo:
    """The processor and RAM this process may use: affinity and cgroup limits counted."""
    name, flags = _cpu_info(root)
    total, free = usable_memory(root)
    return PlatformInfo(
        device_type="cpu",
        device_name=name,
        total_memory=total,
        free_memory=free,
        num_cpus=usable_cpus(root),
        cpu_flags=flags,
    )


def usable_cpus(root: Path = Path("/")) -> int:
    """Cores in the affinity mask, at most the cgroup's quota rounded down; at least 1."""
    has_affinity = hasattr(os, "sched_getaffinity")  # Linux
    cpus = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    for folder in _cgroup_folders(root, "cpu"):
        quota = _cpu_quota(folder)
        if quota is not None:
            cpus = min(cpus, int(quota))
    return max(1, cpus)


def usable_memory(root: Path = Path("/")) -> tuple[int, int]:
    """(total, free) bytes of RAM: the machine's, or the tightest cgroup's above this process.

    Page cache that the kernel can drop counts as free.
    """
    values = _key_values(root / "proc/meminfo")
    total = values.get("MemTotal", 0) << 10
    free = values.get("MemAvailable", values.get("MemFree", 0)) << 10
    if not total:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        free = total
    for folder in _cgroup_folders(root, "memory"):
        limit = _first_number(folder, "memory.max", "memory.limit_in_bytes")
        if limit is None or limit >= total:
            continue
        used = _first_number(folder, "memory.current", "memory.usage_in_bytes") or 0
        stat = _key_values(folder / "memory.stat")
        # v1 counts the children of a group only in the total_ entries.
        droppable = stat.get("total_inactive_file", stat.get("inactive_file", 0))
        total = limit
        free = min(free, max(0, limit - used + droppable))
    return total, free


def _cpu_info(root: Path) -> tuple[str, tuple[str, ...]]:
    """(model name, those of _CPU_FLAGS the processor has)."""
    name, flags = host.processor() or host.machine(), frozenset[str]()
    for line in _lines(root / "proc/cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            name = value.strip()
        elif key.strip() == "flags":
            flags = frozenset(value.split())
            break
    return name, tuple(flag for flag in _CPU_FLAGS if flag in flags)


def _cgroup_folders(root: Path, controller: str) -> list[Path]:
    """This process's cgroup of a controller and those above it, innermost first.

    A container often sees its own cgroup mounted as the top one while /proc names it by its path
    on the host; folders that do not exist are left out.
    """
    folders: list[Path] = []
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        mounts: list[Path] = []
        if not controllers:
            mounts = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        elif controller in controllers.split(","):
            mounts = [root / "sys/fs/cgroup" / controller, root / "sys/fs/cgroup" / controllers]
        for mount in mounts:
            inner = mount / path.strip().lstrip("/")
            chain = [inner, *(p for p in inner.parents if p.is_relative_to(mount))]
            folders += [folder for folder in chain if folder.is_dir()]
    return list(dict.fromkeys(folders))


def _cpu_quota(folder: Path) -> float | None:
    """Cores per second of a cgroup, v2 then v1; None: no limit."""
    words = " ".join(_lines(folder / "cpu.max")).split()
    if len(words) == 2 and words[0] != "max":
        return int(words[0]) / int(words[1])
    quota = _first_number(folder, "cpu.cfs_quota_us")
    period = _first_number(folder, "cpu.cfs_period_us")
    if quota is not None and period and quota > 0:
        return quota / period
    return None


def _first_number(folder: Path, *names: str) -> int | None:
    """The whole number in the first of the files that exists and holds one ("max" does not)."""
    for name in names:
        text = " ".join(_lines(folder / name)).strip()
        if text.lstrip("-").isdigit():
            return int(text)
    return None


def _key_values(path: Path) -> dict[str, int]:
    """Numbers of a file of "key value" or "key: value kB" lines."""
    values = {}
    for line in _lines(path):
        words = line.replace(":", " ").split()
        if len(words) >= 2 and words[1].isdigit():
            values[words[0]] = int(words[1])
    return values


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
