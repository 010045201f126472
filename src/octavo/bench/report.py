"""Where a figure was measured, and the JSON file that keeps it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import octavo
from octavo.bench.clocks import driver_facts
from octavo.platforms.detect import detect_platform

_PACKAGES = ("torch", "triton", "numpy")


def machine_facts() -> dict[str, Any]:
    """Host, processor, device with its driver, versions, and the commit of a checkout."""
    device = detect_platform(None)
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "processor": _processor(),
        "num_cpus": device.num_cpus,
        "load": os.getloadavg()[0],  # processes that ran or wanted to, over the last minute
        "device": device.device_name,
        "python": platform.python_version(),
        "octavo": octavo.__version__,
        "commit": commit(),
        **{name: _version(name) for name in _PACKAGES},
        **driver_facts(),
    }


def commit() -> str | None:
    """The commit that octavo's source is checked out at, "-dirty" if changed; None elsewhere."""
    folder = Path(octavo.__file__).parent
    # Of the folder that holds the package, not of a repository around an installation.
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=12", "--dirty"]
    tracked = ["git", "-C", str(folder), "ls-files", "--error-unmatch", "__init__.py"]
    try:
        subprocess.run(tracked, capture_output=True, check=True)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def save(result: dict[str, Any], path: Path) -> None:
    """Write a result, with the date and the machine's facts, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    complete = {"date": date_stamp(), **result, "machine": machine_facts()}
    path.write_text(json.dumps(complete, indent=1) + "\n", encoding="utf-8")


def date_stamp() -> str:
    """The local date and time as 20261130-101500."""
    return datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
