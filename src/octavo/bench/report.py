"""Where a figure was measured, and the JSON file that keeps it."""

from __future__ import annotations

import json
import platform
from datetime import datetime
from pathlib import Path
from typing import Any

import octavo
from octavo.platforms.detect import detect_platform


def machine_facts() -> dict[str, Any]:
    """Host, processor, device and versions."""
    device = detect_platform(None)
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "processor": _processor(),
        "num_cpus": device.num_cpus,
        "device": device.device_name,
        "python": platform.python_version(),
        "octavo": octavo.__version__,
    }


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
