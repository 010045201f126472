"""Where settings come from: the command line first, then a YAML file, then the defaults."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from octavo.config.flags import FlagParser
from octavo.config.flatten import flatten, section_key
from octavo.config.options import Option
from octavo.types.errors import ConfigError

_POSITIONAL_MODEL = "positional_model"


def add_model_and_config(parser: FlagParser) -> None:
    """[MODEL], which means --model, and --config FILE: the same settings from YAML."""
    parser.add_argument(
        _POSITIONAL_MODEL,
        metavar="MODEL",
        nargs="?",
        default=argparse.SUPPRESS,
        help="A folder, a .gguf file or a Hugging Face id; by default a small model.",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="YAML file of flags (names without dashes in front, flat or in sections). Flags on "
        "the command line go before it.",
    )


def parse_options(
    parser: FlagParser, argv: Sequence[str], options: Mapping[str, Option]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(option name -> value as written, the parser's other values).

    Raises ConfigError for anything unknown, or given twice with different values.
    """
    values = parser.parse(argv)
    known = set(options) | {section_key(o.section) for o in options.values()}
    given = {
        key: value if key in options else _decode_section(key, value)
        for key, value in values.items()
        if key in known
    }
    others = {key: value for key, value in values.items() if key not in known}
    path = others.pop("config", None)
    from_file = read_config_file(path, options) if path else {}
    from_flags = flatten(given, options)
    model = others.pop(_POSITIONAL_MODEL, None)
    if model is not None and from_flags.setdefault("model", model) != model:
        raise ConfigError(
            f"model is given twice: {model!r} and {from_flags['model']!r}; keep one of them"
        )
    return from_file | from_flags, others


def read_config_file(path: str, options: Mapping[str, Option]) -> dict[str, Any]:
    """Options in a YAML file, flat or in sections. Raises ConfigError with the file's name."""
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"config={path!r}: can't read the file ({error.strerror})") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"config={path!r} is not valid YAML: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigError(f"config={path!r}: expected `name: value` lines")
    try:
        return flatten(content, options)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _decode_section(key: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{key}={value!r} is not valid JSON: {error}") from None
