"""Whether Triton's interpreter can run here."""

from __future__ import annotations

import importlib.metadata
import importlib.util

import numpy as np
import pytest


def require_interpreter() -> None:
    """Skip the calling module where there is no Triton, or one that this NumPy breaks."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed", allow_module_level=True)
    version = tuple(int(part) for part in importlib.metadata.version("triton").split(".")[:2])
    numpy_version = tuple(int(part) for part in np.__version__.split(".")[:2])
    if version < (3, 7) and numpy_version >= (2, 4):
        reason = "the interpreter of Triton before 3.7 needs NumPy before 2.4"
        pytest.skip(reason, allow_module_level=True)
