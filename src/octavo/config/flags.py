"""Command-line flags made from options: --x/--no-x, JSON and dotted forms, typo guesses."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from octavo.config.absent import why_absent
from octavo.config.convert import nearest
from octavo.config.flatten import section_key
from octavo.config.hf import merge
from octavo.config.options import Option
from octavo.types.errors import ConfigError

_SECTION_SHORT = {"compilation": "-cc", "attention": "-ac"}
_DOTTED = re.compile(r"(--?[A-Za-z][\w-]*)\.([\w.-]+)(?:=(.*))?", re.DOTALL)


class FlagParser(argparse.ArgumentParser):
    """An argument parser that raises ConfigError instead of printing its usage and exiting.

    Long flags may be written with underscores. `--help=WORD` prints the groups and flags that
    have WORD in their name.
    """

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(
            prog=prog,
            usage="%(prog)s [MODEL] [FLAGS]",
            description=description,
            allow_abbrev=False,
            formatter_class=_HelpFormatter,
        )
        self.epilog = (
            "Numbers may carry a suffix: 4k = 4000, 4K = 4096. Flags may be written with "
            "underscores. --help=WORD shows the flags with WORD in their name."
        )

    def error(self, message: str) -> NoReturn:
        """Called by argparse; its message names the argument."""
        message = message.removeprefix("argument ")
        flag, _, rest = message.partition(": ")
        if rest.startswith("ignored explicit argument"):
            message = f"{flag} takes no value: write {flag.replace('/', ' or ')}"
        raise ConfigError(message)

    def parse(self, argv: Sequence[str]) -> dict[str, Any]:
        """What the command line says, by destination; nothing that it does not say."""
        words = [_with_dashes(word) for word in argv]
        for word in words:
            if word.startswith("--help="):
                self._print_help_about(word.removeprefix("--help="))
                self.exit(0)
        words, dotted = self._take_dotted(words)
        namespace, unknown = self.parse_known_args(words)
        for word in unknown:
            if word.startswith("-"):
                self._refuse_flag(word)
        if unknown:
            raise ConfigError(f"unexpected argument {unknown[0]!r}")
        values = vars(namespace)
        for key, extra in dotted.items():
            values[key] = _merge_json(key, values.get(key), extra)
        return values

    def flags(self) -> list[str]:
        """Every spelling of every flag."""
        return list(self._option_string_actions)

    def _refuse_flag(self, word: str) -> NoReturn:
        flag = word.partition("=")[0]
        reason = why_absent(flag)
        if reason is not None:
            raise ConfigError(reason)
        guess = nearest(flag, self.flags()) or f"; {self.prog} --help lists the flags"
        raise ConfigError(f"unknown flag {flag}{guess}")

    def _take_dotted(self, words: list[str]) -> tuple[list[str], dict[str, dict[str, Any]]]:
        """Split off `--section-config.key value` words: (the other words, key path -> value)."""
        rest: list[str] = []
        nested: dict[str, dict[str, Any]] = {}
        stream = iter(words)
        for word in stream:
            match = _DOTTED.fullmatch(word)
            if match is None:
                rest.append(word)
                continue
            flag, path, value = match.groups()
            action = self._option_string_actions.get(flag)
            if action is None or action.metavar != "JSON":
                self._refuse_flag(flag if action is None else word)
            if value is None:
                value = next(stream, None)
            if value is None:
                raise ConfigError(f"{word} expects a value")
            _put_path(nested.setdefault(action.dest, {}), path.split("."), _json_or_text(value))
        return rest, nested

    def _print_help_about(self, word: str) -> None:
        wanted = word.lower().replace("_", "-").lstrip("-")
        formatter = self._get_formatter()
        for group in self._action_groups:
            whole = wanted in ("all", (group.title or "").lower().replace(" ", "-"))
            actions = [
                action
                for action in group._group_actions
                if whole or any(wanted in flag for flag in action.option_strings)
            ]
            if actions:
                formatter.start_section(group.title)
                formatter.add_arguments(actions)
                formatter.end_section()
        text = formatter.format_help() or f"no flag has {word!r} in its name\n"
        self._print_message(text, sys.stdout)


class _HelpFormatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=100)


def add_flags(parser: FlagParser, options: Mapping[str, Option], *, sections: bool) -> None:
    """Add a flag per option, grouped by section, and with `sections` one per whole section."""
    groups: dict[str, Any] = {}
    for known in options.values():
        if known.section not in groups:
            groups[known.section] = parser.add_argument_group(known.section)
            if sections:
                _add_section_flag(groups[known.section], known.section)
        _add_flag(groups[known.section], known)


def _add_section_flag(group: Any, section: str) -> None:
    name = section_key(section)
    flag = "--" + name.replace("_", "-")
    short = [_SECTION_SHORT[section]] if section in _SECTION_SHORT else []
    group.add_argument(
        flag,
        *short,
        dest=name,
        metavar="JSON",
        default=argparse.SUPPRESS,
        help=f"Flags of this group as one JSON object; or {flag}.NAME VALUE.",
    )


def _add_flag(group: Any, known: Option) -> None:
    spellings = [known.flag, *([known.short] if known.short else [])]
    common: dict[str, Any] = {
        "dest": known.name,
        "default": argparse.SUPPRESS,
        "help": _help(known),
    }
    if known.base == "bool":
        group.add_argument(*spellings, action=argparse.BooleanOptionalAction, **common)
    elif known.many:
        group.add_argument(*spellings, nargs="+", metavar=_metavar(known), **common)
    else:
        group.add_argument(*spellings, metavar=_metavar(known), **common)


def _metavar(known: Option) -> str:
    words = {"dict": "JSON", "int": "N", "float": "X", "str": "TEXT", "choice": ""}[known.base]
    if known.choices:
        words = "{" + ",".join([*known.choices, *([words] if words else [])]) + "}"
    return words


def _help(known: Option) -> str:
    text = known.help
    default = known.default
    if default is not None and default != {}:
        if isinstance(default, tuple):
            default = " ".join(default)
        text = f"{text} (default: {default})"
    return text.replace("%", "%%")


def _with_dashes(word: str) -> str:
    """--max_model_len=x_y -> --max-model-len=x_y; the part after a dot stays."""
    if not word.startswith("--"):
        return word
    match = re.match(r"--[\w-]+", word)
    if match is None:
        return word
    return match.group().replace("_", "-") + word[match.end() :]


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def _put_path(target: dict[str, Any], path: list[str], value: Any) -> None:
    for key in path[:-1]:
        target = target.setdefault(key, {})
        if not isinstance(target, dict):
            raise ConfigError(f"{'.'.join(path)}: {key} already has a value that is no object")
    target[path[-1]] = value


def _merge_json(key: str, given: str | None, extra: dict[str, Any]) -> dict[str, Any]:
    """Dotted values over those of the JSON form of the same flag."""
    if given is None:
        return extra
    value = _json_or_text(given)
    if not isinstance(value, dict):
        raise ConfigError(f"{key}={given!r}: expected a JSON object")
    return merge(value, extra)
