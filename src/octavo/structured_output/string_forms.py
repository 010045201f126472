"""Formats and patterns of JSON schemas, as regular expressions that mean all of what they say."""

from __future__ import annotations

import re

# The year 0000, which few programs can read, and leap seconds, whose days no pattern can know, are
# left out; so are fractions finer than a nanosecond.
_YEAR = r"(?:\d{3}[1-9]|\d{2}[1-9]0|\d[1-9]00|[1-9]000)"
_LEAP_YEAR = r"(?:\d{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    rf"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
    rf"|{_LEAP_YEAR}-02-29)"
)
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)"

# Formats of RFC 3339 that llguidance takes for something wider: 30 February, any leap second.
FORMAT_PATTERNS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}[Tt]{_TIME}$",
}

# What \s is in ECMA 262; Rust's has U+0085 and lacks U+FEFF.
_BLANKS = r"\t-\r \x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}\x{FEFF}"
_ESCAPE = re.compile(r"\\.", re.DOTALL)


def ecma_pattern(pattern: str) -> str:
    r"""`pattern` of a JSON schema, in ECMA 262, for Rust's regex: \s and \S spelled out."""
    classes = {r"\s": f"[{_BLANKS}]", r"\S": f"[^{_BLANKS}]"}
    return _ESCAPE.sub(lambda escape: classes.get(escape[0], escape[0]), pattern)
