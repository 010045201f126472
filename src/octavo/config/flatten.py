"""Nested and differently spelled settings -> one flat mapping of option names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.config.absent import why_absent
from octavo.config.convert import nearest
from octavo.config.options import Option
from octavo.types.errors import ConfigError

# Names inside a section that differ from the flat ones.
_NESTED_NAMES = {
    ("attention", "backend"): "attention_backend",
    ("cache", "cache_dtype"): "kv_cache_dtype",
    ("compilation", "mode"): "compilation_mode",
    ("scheduler", "policy"): "scheduling_policy",
    ("structured_outputs", "backend"): "structured_outputs_backend",
}


def section_key(section: str) -> str:
    """The name under which a whole section may be given: "cache_config"."""
    return f"{section}_config"


def flatten(values: Mapping[str, Any], options: Mapping[str, Option]) -> dict[str, Any]:
    """Option name -> value as written, from flat names and nested sections, dashes allowed.

    `{"cache-config": {"block_size": 32}, "seed": 1}` gives `{"block_size": 32, "seed": 1}`.
    Raises ConfigError for an unknown name (with the nearest one) and for one given twice with
    different values.
    """
    sections = {section_key(o.section): o.section for o in options.values()}
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name in options:
            _put(flat, name, value)
        elif name in sections:
            _flatten_section(flat, sections[name], value, options)
        else:
            guess = nearest(name, [*options, *sections])
            raise ConfigError(why_absent(key) or f"unknown option {key!r}{guess}")
    return flat


def _flatten_section(
    flat: dict[str, Any], section: str, values: Any, options: Mapping[str, Option]
) -> None:
    key = section_key(section)
    if not isinstance(values, Mapping):
        raise ConfigError(f"{key}={values!r}: expected a mapping of the section's options")
    known = [name for name, o in options.items() if o.section == section]
    for inner, value in values.items():
        name = str(inner).replace("-", "_")
        name = _NESTED_NAMES.get((section, name), name)
        if name not in known:
            guess = nearest(name, known)
            raise ConfigError(why_absent(name) or f"unknown option {inner!r} in {key}{guess}")
        _put(flat, name, value)


def _put(flat: dict[str, Any], name: str, value: Any) -> None:
    if name in flat and flat[name] != value:
        raise ConfigError(f"{name} is given twice: {flat[name]!r} and {value!r}; keep one of them")
    flat[name] = value
