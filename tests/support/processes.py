"""Looking at processes from tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil

DEADLINE = 20.0  # seconds; far beyond what anything here takes


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until true; fails the test after DEADLINE."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def leftovers(folder: Path) -> list[str]:
    """Files of ours in a temporary folder."""
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("octavo-"))
