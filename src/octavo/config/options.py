"""Options: dataclass fields that carry their own help, limits and short flags."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Literal

_METADATA_KEY = "octavo.option"


@dataclass(frozen=True)
class _Details:
    help: str
    short: str | None
    low: float | None
    high: float | None
    low_open: bool


def option(
    default: Any,
    help: str,
    *,
    short: str | None = None,
    low: float | None = None,
    high: float | None = None,
    low_open: bool = False,
) -> Any:
    """A dataclass field that is also a flag.

    `help` is one or two sentences; `short` a one-dash spelling ("-tp"); `low` and `high` bound
    numbers (inclusive, `low` exclusive with `low_open`). Use it only with immutable defaults, or
    a dict, which each instance gets its own copy of.
    """
    metadata = {_METADATA_KEY: _Details(help, short, low, high, low_open)}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Option:
    """One option as parsers see it.

    `base` is "bool", "int", "float", "str", "dict" or "choice"; `many` makes it a list of them.
    """

    name: str  # the field's name, underscores
    section: str
    base: str
    choices: tuple[str, ...]  # words it takes instead of, or besides, a value of type `base`
    many: bool
    optional: bool  # takes None
    default: Any
    help: str
    short: str | None
    low: float | None
    high: float | None
    low_open: bool

    @property
    def flag(self) -> str:
        """The two-dash spelling."""
        return "--" + self.name.replace("_", "-")

    @property
    def expected(self) -> str:
        """What a value must look like, in words."""
        words = {
            "bool": "true or false",
            "int": "a whole number (4096, 4k = 4000, 4K = 4096)",
            "float": "a number",
            "str": "a string",
            "dict": "a JSON object",
            "choice": "",
        }[self.base]
        parts = [words] if words else []
        if self.choices:
            parts.append(f"one of {', '.join(self.choices)}")
        return ("a list of: " if self.many else "") + " or ".join(parts)


def options_of(cls: type, section: str) -> dict[str, Option]:
    """The options of a dataclass, by field name, in the order written."""
    hints = typing.get_type_hints(cls)
    return {
        f.name: _describe(f, hints[f.name], section)
        for f in fields(cls)
        if _METADATA_KEY in f.metadata
    }


def _describe(f: Field[Any], hint: Any, section: str) -> Option:
    details: _Details = f.metadata[_METADATA_KEY]
    base, choices, many, optional = _read_hint(hint)
    default = f.default if f.default_factory is MISSING else f.default_factory()
    return Option(
        name=f.name,
        section=section,
        base=base,
        choices=choices,
        many=many,
        optional=optional,
        default=default,
        help=details.help,
        short=details.short,
        low=details.low,
        high=details.high,
        low_open=details.low_open,
    )


def _read_hint(hint: Any) -> tuple[str, tuple[str, ...], bool, bool]:
    """(base, choices, many, optional) of a type such as `int | Literal["auto"] | None`."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    members = list(typing.get_args(hint)) if is_union else [hint]
    optional = type(None) in members
    base, many = "choice", False
    choices: tuple[str, ...] = ()
    for member in members:
        origin = typing.get_origin(member)
        if member is type(None):
            continue
        if origin is Literal:
            choices = typing.get_args(member)
        elif origin is tuple:
            base, choices, _, _ = _read_hint(typing.get_args(member)[0])
            many = True
        elif origin in (dict, Mapping):
            base = "dict"
        else:
            base = {bool: "bool", int: "int", float: "float", str: "str"}[member]
    return base, choices, many, optional
