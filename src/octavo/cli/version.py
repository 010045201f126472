"""`octavo version`: what is installed, read without importing it."""

from __future__ import annotations

import platform
from collections.abc import Sequence

import octavo
from octavo.config.flags import FlagParser
from octavo.platforms.detect import torch_version


def parser() -> FlagParser:
    """The flags of the command."""
    made = FlagParser("octavo version", "Print the versions of octavo and what it runs on.")
    made.usage = "%(prog)s"
    return made


def main(argv: Sequence[str]) -> int:
    """Print one line per component."""
    parser().parse(argv)
    print(f"octavo {octavo.__version__}")
    print(f"Python {platform.python_version()}")
    print(f"torch {torch_version() or 'is not installed'}")
    return 0
