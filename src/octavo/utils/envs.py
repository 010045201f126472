"""Every environment variable octavo reads, typed, in one place."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_root() -> Path:
    """OCTAVO_CACHE_ROOT: where compiled kernels and downloads are kept."""
    default = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "octavo"
    return Path(os.environ.get("OCTAVO_CACHE_ROOT", str(default))).expanduser()


def kernel_cache() -> Path:
    """OCTAVO_KERNEL_CACHE: folder of compiled GPU kernels, "kernels" in the cache root by default.

    Several processes, machines and versions may use one.
    """
    value = os.environ.get("OCTAVO_KERNEL_CACHE")
    return Path(value).expanduser() if value else cache_root() / "kernels"


def hub_cache() -> Path:
    """HF_HUB_CACHE, HF_HOME: where the client of the Hugging Face hub keeps models."""
    default = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    home = Path(os.environ.get("HF_HOME", str(default)))
    return Path(os.environ.get("HF_HUB_CACHE", str(home / "hub"))).expanduser()


def use_kernel_cache_folder(folder: Path) -> None:
    """Have engines started from now on keep their kernels in `folder`."""
    os.environ["OCTAVO_KERNEL_CACHE"] = str(folder)


def shared_kernel_caches() -> tuple[Path, ...]:
    """OCTAVO_SHARED_KERNEL_CACHES: more such folders, after colons, that are only read."""
    value = os.environ.get("OCTAVO_SHARED_KERNEL_CACHES", "")
    return tuple(Path(part).expanduser() for part in value.split(os.pathsep) if part)


def compile_processes() -> int | None:
    """OCTAVO_COMPILE_PROCESSES: kernels compiled at a time; 0: as they are met; unset: by cores."""
    value = os.environ.get("OCTAVO_COMPILE_PROCESSES")
    return int(value) if value else None


def use_modelscope() -> bool:
    """OCTAVO_USE_MODELSCOPE: 1 takes ids of models (owner/name) for those of modelscope.cn."""
    return os.environ.get("OCTAVO_USE_MODELSCOPE", "0") == "1"


def logging_level() -> str:
    """OCTAVO_LOGGING_LEVEL: DEBUG, INFO (default), WARNING or ERROR."""
    return os.environ.get("OCTAVO_LOGGING_LEVEL", "INFO").upper()


def logging_json() -> bool:
    """OCTAVO_LOGGING_JSON: 1 writes one JSON object per log line."""
    return os.environ.get("OCTAVO_LOGGING_JSON", "0") == "1"


def plain_output() -> bool:
    """NO_COLOR (https://no-color.org) is set, or TERM says that the terminal has no styles."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM", "dumb") == "dumb"


def multiprocessing() -> bool:
    """OCTAVO_ENABLE_MULTIPROCESSING: 0 runs LLM's engine core in the calling process."""
    return os.environ.get("OCTAVO_ENABLE_MULTIPROCESSING", "1") == "1"


def engine_ready_timeout() -> float:
    """OCTAVO_ENGINE_READY_TIMEOUT_S: seconds to wait for an engine core to become ready."""
    return float(os.environ.get("OCTAVO_ENGINE_READY_TIMEOUT_S", "600"))


def stall_timeout() -> float:
    """OCTAVO_STALL_TIMEOUT_S: seconds a step may take before /health answers 503."""
    return float(os.environ.get("OCTAVO_STALL_TIMEOUT_S", "300"))


def cpu_kernels() -> str:
    """OCTAVO_CPU_KERNELS: auto (default: native where a C compiler is found), native or torch."""
    return os.environ.get("OCTAVO_CPU_KERNELS", "auto").lower()


def cpu_threads() -> int | None:
    """OCTAVO_CPU_THREADS: compute threads of a CPU worker; unset: the usable cores."""
    value = os.environ.get("OCTAVO_CPU_THREADS")
    return int(value) if value else None


def api_keys() -> tuple[str, ...]:
    """OCTAVO_API_KEY: keys, after commas, of which a client of the server must send one.

    They add to --api-key, which other users of the machine can read in the process list.
    """
    keys = os.environ.get("OCTAVO_API_KEY", "").split(",")
    return tuple(key.strip() for key in keys if key.strip())


def admin_api_keys() -> tuple[str, ...]:
    """OCTAVO_ADMIN_API_KEY: keys, after commas, for the admin endpoints; see --admin-api-key."""
    keys = os.environ.get("OCTAVO_ADMIN_API_KEY", "").split(",")
    return tuple(key.strip() for key in keys if key.strip())


# OpenMP threads that spin between two operations take the processor from the front end. GNU's may
# spin for about 0.1 ms: the next operation of a step comes sooner, and waking a thread costs as
# much.
_PASSIVE_THREADS = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "5000"}


def use_passive_threads() -> None:
    """Have OpenMP threads sleep while they wait, unless OMP_WAIT_POLICY or KMP_BLOCKTIME is set.

    Both are read once, when torch is first imported.
    """
    for name, value in _PASSIVE_THREADS.items():
        os.environ.setdefault(name, value)


def python_path() -> str:
    """PYTHONPATH for a child that is to find exactly the modules that this process finds."""
    return os.pathsep.join(entry for entry in sys.path if entry)


def use_compiler_cache() -> None:
    """Have torch.compile keep its code in cache_root(), unless TORCHINDUCTOR_CACHE_DIR is set."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_root() / "inductor"))


def child_environment(values: dict[str, str]) -> dict[str, str]:
    """The environment of a child process: ours with `values`, and passive OpenMP threads."""
    return {**_PASSIVE_THREADS, **os.environ, **values}


_SHOWN = ("OCTAVO_", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "HF_", "TRITON_", "TORCHINDUCTOR_")
_SECRET = ("KEY", "TOKEN")


def settings() -> dict[str, str]:
    """The variables that are set and change what octavo does; keys and tokens are hidden."""
    return {
        name: "***" if name.endswith(_SECRET) else value
        for name, value in os.environ.items()
        if name.startswith(_SHOWN)
    }
