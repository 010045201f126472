"""Point: one setting of a server under one load; and the folder in which its figures are kept."""

from __future__ import annotations

import hashlib
import itertools
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from octavo.config.convert import convert, nearest
from octavo.config.options import Option
from octavo.types.errors import ConfigError

Setting = Mapping[str, str]  # option name -> value as written; {}: nothing but the common flags


@dataclass(frozen=True)
class Load:
    """Most requests in flight, or requests per second."""

    kind: Literal["concurrency", "rate"]
    amount: float

    def __str__(self) -> str:
        unit = "req/s" if self.kind == "rate" else "stream" if self.amount == 1 else "streams"
        return f"{self.amount:g} {unit}"


@dataclass(frozen=True)
class Point:
    """A setting, a load, and the medians over the repetitions of what was measured."""

    setting: Setting
    load: Load
    figures: Mapping[str, float]
    repetitions: Sequence[Mapping[str, float]] = ()

    @classmethod
    def of(cls, setting: Setting, load: Load, repetitions: Sequence[Mapping[str, float]]) -> Point:
        """From the figures of one repetition or more."""
        figures = {
            name: float(statistics.median(each[name] for each in repetitions if name in each))
            for name in repetitions[0]
        }
        return cls(setting, load, figures, repetitions)

    @property
    def setting_name(self) -> str:
        """The setting in words."""
        return setting_name(self.setting)


def setting_name(setting: Setting) -> str:
    """A setting in words."""
    return " ".join(f"{name}={value}" for name, value in setting.items()) or "as given"


def parse_knobs(words: Sequence[str], options: Mapping[str, Option]) -> dict[str, list[str]]:
    """NAME=VALUE,VALUE words -> values by option. Raises ConfigError for what no server takes."""
    knobs: dict[str, list[str]] = {}
    for word in words:
        name, equals, values = word.partition("=")
        name = name.lstrip("-").replace("-", "_")
        if not equals or not values:
            raise ConfigError(f"vary={word!r}: write NAME=VALUE,VALUE,...")
        if name not in options:
            raise ConfigError(f"vary={word!r}: there is no such option{nearest(name, options)}")
        if name in knobs:
            raise ConfigError(f"vary={word!r}: {name} is there twice; put its values together")
        knobs[name] = values.split(",")
        for value in knobs[name]:
            convert(options[name], value)
    return knobs


def make_settings(
    knobs: Mapping[str, Sequence[str]], design: Literal["each", "all"]
) -> list[Setting]:
    """each: the common flags alone, then one knob at a time; all: every combination."""
    if design == "all":
        combinations = itertools.product(*knobs.values())
        return [dict(zip(knobs, values, strict=True)) for values in combinations]
    single: list[Setting] = [{name: v} for name, values in knobs.items() for v in values]
    return [{}, *single]


class FigureStore:
    """Figures as files of a folder, so that a sweep that was interrupted can be taken up again."""

    def __init__(self, folder: Path, common: Mapping[str, Any]) -> None:
        """`common`: what all points share. Raises ConfigError if the folder has another sweep's."""
        self._points = folder / "points"
        self._points.mkdir(parents=True, exist_ok=True)
        path = folder / "common.json"
        text = json.dumps(common, indent=1, sort_keys=True) + "\n"
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise ConfigError(
                f"folder={str(folder)!r} holds a sweep with other flags (see {path.name} there); "
                "name another with --folder, or delete it"
            )
        path.write_text(text, encoding="utf-8")

    def find(self, setting: Setting, load: Load, repetition: int) -> dict[str, float] | None:
        """The figures, if they have been measured."""
        path = self._path(setting, load, repetition)
        if not path.exists():
            return None
        figures: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))["figures"]
        return figures

    def put(
        self, setting: Setting, load: Load, repetition: int, figures: Mapping[str, float]
    ) -> None:
        """Keep figures."""
        content = {
            "setting": dict(setting),
            "load": vars(load),
            "repetition": repetition,
            "figures": dict(figures),
        }
        path = self._path(setting, load, repetition)
        # In one go, so that an interrupted sweep leaves no half of a file.
        unfinished = path.with_suffix(".new")
        unfinished.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(path)

    def _path(self, setting: Setting, load: Load, repetition: int) -> Path:
        key = json.dumps([sorted(setting.items()), vars(load), repetition])
        return self._points / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
