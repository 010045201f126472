"""`octavo version`: what is installed, read without importing it."""

from __future__ import annotations

import platform
from collections.abc import Sequence

import octavo
from octavo.platforms.detect import torch_version
from octavo.types.errors import ConfigError


def main(argv: Sequence[str]) -> int:
    """Print one line per component."""
    if argv and argv[0] in ("-h", "--help"):
        print("usage: octavo version\n\nPrint the versions of octavo and what it runs on.")
        return 0
    if argv:
        raise ConfigError(f"unexpected argument {argv[0]!r}; octavo version takes none")
    print(f"octavo {octavo.__version__}")
    print(f"Python {platform.python_version()}")
    print(f"torch {torch_version() or 'is not installed'}")
    return 0
