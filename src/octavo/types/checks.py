"""Checks of request fields: numbers within a range, lists of strings and of token ids."""

from __future__ import annotations

import math

from octavo.types.errors import RequestError


def check_range(
    name: str,
    value: float,
    low: float,
    high: float,
    *,
    low_open: bool = False,
    param: str | None = None,
) -> None:
    """Refuse what is no finite number in [low, high], or is `low` where that is out of it."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise RequestError(f"{name}={value!r} is not a number", param or name)
    inside = math.isfinite(value) and low <= value <= high
    if inside and not (low_open and value == low):
        return
    left = "(" if low_open else "["
    raise RequestError(f"{name}={value!r} is outside {left}{low}, {high}]", param or name)


def check_strings(name: str, values: list[str], max_count: int, max_length: int) -> None:
    """Refuse what is no list of up to `max_count` strings of 1 to `max_length` characters."""
    if not isinstance(values, list | tuple):
        raise RequestError(f"{name}={values!r} is no list of strings", name)
    if len(values) > max_count:
        raise RequestError(f"{name} has {len(values)} entries; at most {max_count}", name)
    for value in values:
        if not isinstance(value, str) or not value:
            raise RequestError(f"{name} holds {value!r}; entries are non-empty strings", name)
        if len(value) > max_length:
            raise RequestError(
                f"{name} holds a string of {len(value)} characters; at most {max_length}", name
            )


def check_ids(name: str, values: list[int] | None, max_count: int) -> None:
    """Refuse what is no list of up to `max_count` integers >= 0; None is nothing to check."""
    if values is None:
        return
    if not isinstance(values, list | tuple | set | frozenset):
        raise RequestError(f"{name}={values!r} is no list of token ids", name)
    if len(values) > max_count:
        raise RequestError(f"{name} has {len(values)} entries; at most {max_count}", name)
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise RequestError(f"{name} holds {value!r}; entries are token ids >= 0", name)
