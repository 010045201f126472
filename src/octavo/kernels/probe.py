"""Run as a process by `octavo doctor`: what torch and the C kernels really do here, as JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

_BEGIN = time.monotonic()

import torch  # noqa: E402  (its import is what is timed)

from octavo.kernels.cpu.library import NativeUnavailable, build, load  # noqa: E402
from octavo.utils import envs  # noqa: E402

_IMPORT_SECONDS = time.monotonic() - _BEGIN


def probe() -> dict[str, Any]:
    """What a worker would find; nothing is raised for what does not work."""
    return {
        "torch": torch.__version__,
        "import_seconds": round(_IMPORT_SECONDS, 2),
        "threads": torch.get_num_threads(),
        "cuda_build": torch.version.cuda,
        "cuda": _cuda(),
        "native": _native(),
    }


def _cuda() -> dict[str, Any] | None:
    """None for a build without CUDA; "error" where a kernel can't be run."""
    if torch.version.cuda is None:
        return None
    found: dict[str, Any] = {"devices": 0, "error": None}
    try:
        # Unlike is_available(), this says what is wrong.
        torch.cuda.init()
        found["devices"] = torch.cuda.device_count()
        found["error"] = None if torch.ones(1, device="cuda").add(1).item() == 2 else "1 + 1 != 2"
    except (RuntimeError, AssertionError) as error:
        found["error"] = str(error).strip().partition("\n")[0]
    return found


def _native() -> dict[str, Any]:
    """The C kernels: how many floats they take at a time, or why they can't be used."""
    try:
        library = load(build(envs.cache_root() / "native"))
    except NativeUnavailable as error:
        return {"lanes": None, "error": str(error)}
    return {"lanes": int(library.octavo_lanes()), "error": None}


if __name__ == "__main__":
    json.dump(probe(), sys.stdout)
