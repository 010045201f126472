"""MemoryLedger: what the parts of an engine took of the device, measured as they were made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from octavo.platforms.interface import Platform


class MemoryLedger:
    """Bytes by the names that `octavo.engine.plan_check` compares with the plan."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._lines: dict[str, int] = {"context": platform.memory_use().outside}

    @contextlib.contextmanager
    def kept(self, name: str) -> Iterator[None]:
        """Tensors that the body made and that stay."""
        before = self._platform.memory_use().tensors
        yield
        self._lines[name] = self._platform.memory_use().tensors - before

    @contextlib.contextmanager
    def passing(self, name: str) -> Iterator[None]:
        """Tensors that existed at once in the body, and what the allocator needed beyond them."""
        self._platform.forget_peak()
        before = self._platform.memory_use()
        yield
        after = self._platform.memory_use()
        self._lines[name] = after.peak - before.tensors
        self._lines["fragmentation"] = after.reserved - after.peak

    @contextlib.contextmanager
    def growth(self, name: str) -> Iterator[None]:
        """Whatever the device lost in the body: the allocator's memory and the driver's."""
        before = self._platform.memory_use()
        yield
        after = self._platform.memory_use()
        self._lines[name] = after.total - before.total

    def lines(self) -> dict[str, int]:
        """Bytes by name."""
        return dict(self._lines)
