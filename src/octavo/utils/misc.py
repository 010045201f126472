"""Integer arithmetic that several packages need."""

from __future__ import annotations


def cdiv(a: int, b: int) -> int:
    """Ceiling of a / b."""
    return -(-a // b)


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is >= value."""
    return cdiv(value, multiple) * multiple


def next_power_of_2(value: int) -> int:
    """The smallest power of two >= value (1 for values below 1)."""
    return 1 << max(value - 1, 0).bit_length()
