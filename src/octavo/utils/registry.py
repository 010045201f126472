"""Registry[T]: an append-only table of names whose entries are imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class Registry(Generic[T]):
    """Names -> "module:attribute" strings or objects; the plug-in seam of every family."""

    def __init__(self, kind: str, entries: dict[str, str | T] | None = None) -> None:
        self.kind = kind
        self._entries: dict[str, str | T] = dict(entries or {})

    def register(self, name: str, entry: str | T) -> None:
        """Add an entry; a taken name is an error unless it is the same entry again."""
        if self._entries.get(name, entry) != entry:
            raise ValueError(f"{self.kind} {name!r} is already registered")
        self._entries[name] = entry

    def names(self) -> list[str]:
        """Every registered name, sorted."""
        return sorted(self._entries)

    def get(self, name: str) -> T:
        """The entry, imported if it is a "module:attribute" string.

        Raises KeyError whose text lists the names there are.
        """
        if name not in self._entries:
            raise KeyError(f"unknown {self.kind} {name!r}; there are: {', '.join(self.names())}")
        entry: Any = self._entries[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = getattr(importlib.import_module(module), attribute)
            self._entries[name] = entry
        return cast(T, entry)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())
