"""Turn what was written (text of a flag, YAML, JSON, a Python value) into an option's value."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from octavo.config.options import Option
from octavo.types.errors import ConfigError

_SUFFIXES = {
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "T": 2**40,
}
_HUMAN_NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?)([kmgtKMGT]?)")


def parse_int(text: str) -> int:
    """A whole number with an optional suffix: 4k = 4000, 4K = 4096, 1.5k = 1500.

    Raises ValueError when it is not a number or not a whole one.
    """
    match = _HUMAN_NUMBER.fullmatch(text.strip().replace("_", ""))
    if match is None:
        raise ValueError(text)
    number, suffix = match.groups()
    digits, _, decimals = number.partition(".")
    scaled: int = int(digits + decimals) * _SUFFIXES.get(suffix, 1)
    divisor: int = 10 ** len(decimals)
    if scaled % divisor:
        raise ValueError(text)
    return scaled // divisor


def nearest(word: str, known: Iterable[str]) -> str:
    """ "; did you mean X?" for the most similar known word, or an empty string."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]}?" if matches else ""


def convert(option: Option, raw: Any) -> Any:
    """The option's value. Raises ConfigError naming the option, the value and what is expected."""
    if raw is None or (option.optional and raw in ("None", "null")):
        if option.optional:
            return None
        raise _error(option, raw)
    if option.many:
        return tuple(_convert_one(option, item) for item in _items(option, raw))
    return _convert_one(option, raw)


def _items(option: Option, raw: Any) -> list[Any]:
    """The entries of a list option; one string may hold a JSON list or several after commas."""
    if isinstance(raw, list | tuple) and len(raw) == 1 and _is_json_list(raw[0]):
        raw = raw[0]
    if _is_json_list(raw):
        raw = _load_json(option, raw)
    if isinstance(raw, str) and option.base == "int":
        raw = raw.split(",")
    return list(raw) if isinstance(raw, list | tuple) else [raw]


def _is_json_list(raw: Any) -> bool:
    return isinstance(raw, str) and raw.lstrip().startswith("[")


def _load_json(option: Option, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{option.name}={text!r} is not valid JSON: {error}") from None


def _convert_one(option: Option, raw: Any) -> Any:
    # A number stands for the word it is written with.
    word = str(raw) if isinstance(raw, int) else raw
    if isinstance(word, str):
        for choice in option.choices:
            if word.lower() == choice.lower():
                return choice
    value = _BASES[option.base](option, raw)
    if option.base in ("int", "float"):
        _check_range(option, value)
    return value


def _to_bool(option: Option, raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.lower() in ("true", "false"):
        return raw.lower() == "true"
    raise _error(option, raw)


def _to_int(option: Option, raw: Any) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if isinstance(raw, float) and raw.is_integer():
        return int(raw)
    if isinstance(raw, str):
        try:
            return parse_int(raw)
        except ValueError:
            pass
    raise _error(option, raw)


def _to_float(option: Option, raw: Any) -> float:
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        value = float(raw)
    elif isinstance(raw, str):
        try:
            value = float(raw)
        except ValueError:
            raise _error(option, raw) from None
    else:
        raise _error(option, raw)
    if not math.isfinite(value):
        raise _error(option, raw)
    return value


def _to_str(option: Option, raw: Any) -> str:
    if isinstance(raw, str):
        return raw
    raise _error(option, raw)


def _to_dict(option: Option, raw: Any) -> dict[str, Any]:
    value = _load_json(option, raw) if isinstance(raw, str) else raw
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return dict(value)
    raise _error(option, raw)


def _to_choice(option: Option, raw: Any) -> str:
    raise _error(option, raw)


_BASES: dict[str, Callable[[Option, Any], Any]] = {
    "bool": _to_bool,
    "int": _to_int,
    "float": _to_float,
    "str": _to_str,
    "dict": _to_dict,
    "choice": _to_choice,
}


def _check_range(option: Option, value: float) -> None:
    low, high = option.low, option.high
    above_low = low is None or (value > low if option.low_open else value >= low)
    if above_low and (high is None or value <= high):
        return
    left = "(" if option.low_open or low is None else "["
    right = ")" if high is None else "]"
    limits = f"{left}{'-inf' if low is None else low}, {'inf' if high is None else high}{right}"
    raise ConfigError(f"{option.name}={value!r} is outside {limits}")


def _error(option: Option, raw: Any) -> ConfigError:
    guess = nearest(raw, option.choices) if isinstance(raw, str) else ""
    return ConfigError(f"{option.name}={raw!r}: expected {option.expected}{guess}")
