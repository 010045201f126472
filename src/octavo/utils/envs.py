"""Every environment variable octavo reads, typed, in one place."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """OCTAVO_CACHE_ROOT: where compiled kernels and downloads are kept."""
    default = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "octavo"
    return Path(os.environ.get("OCTAVO_CACHE_ROOT", str(default))).expanduser()


def logging_level() -> str:
    """OCTAVO_LOGGING_LEVEL: DEBUG, INFO (default), WARNING or ERROR."""
    return os.environ.get("OCTAVO_LOGGING_LEVEL", "INFO").upper()


def logging_json() -> bool:
    """OCTAVO_LOGGING_JSON: 1 writes one JSON object per log line."""
    return os.environ.get("OCTAVO_LOGGING_JSON", "0") == "1"


def multiprocessing() -> bool:
    """OCTAVO_ENABLE_MULTIPROCESSING: 0 runs LLM's engine core in the calling process."""
    return os.environ.get("OCTAVO_ENABLE_MULTIPROCESSING", "1") == "1"


def engine_ready_timeout() -> float:
    """OCTAVO_ENGINE_READY_TIMEOUT_S: seconds to wait for an engine core to become ready."""
    return float(os.environ.get("OCTAVO_ENGINE_READY_TIMEOUT_S", "600"))


def stall_timeout() -> float:
    """OCTAVO_STALL_TIMEOUT_S: seconds a step may take before /health answers 503."""
    return float(os.environ.get("OCTAVO_STALL_TIMEOUT_S", "300"))


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


# OpenMP threads that spin between two operations take the processor from the front end.
_PASSIVE_THREADS = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}


def use_passive_threads() -> None:
    """Have OpenMP threads sleep while they wait, unless OMP_WAIT_POLICY or KMP_BLOCKTIME is set.

    Both are read once, when torch is first imported.
    """
    for name, value in _PASSIVE_THREADS.items():
        os.environ.setdefault(name, value)


def child_environment(values: dict[str, str]) -> dict[str, str]:
    """The environment of a child process: ours with `values`, and passive OpenMP threads."""
    return {**_PASSIVE_THREADS, **os.environ, **values}
