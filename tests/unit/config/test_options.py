"""Options read from dataclass fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from octavo.config.options import option, options_of


@dataclass(frozen=True, kw_only=True)
class Section:
    plain: int = option(3, "Three.", short="-p", low=1, high=9)
    words: Literal["a", "b"] | None = option(None, "Words.")
    mixed: int | Literal["auto"] = option("auto", "Mixed.")
    many: tuple[float, ...] = option((), "Many.")
    free: Mapping[str, Any] = option({}, "Free.")
    derived: int = 7


def test_fields_become_options():
    found = options_of(Section, "section")
    assert list(found) == ["plain", "words", "mixed", "many", "free"]
    plain = found["plain"]
    assert (plain.base, plain.flag, plain.short, plain.default) == ("int", "--plain", "-p", 3)
    assert (plain.low, plain.high, plain.optional, plain.section) == (1, 9, False, "section")
    words = found["words"]
    assert (words.base, words.choices, words.optional) == ("choice", ("a", "b"), True)
    assert (found["mixed"].base, found["mixed"].choices) == ("int", ("auto",))
    assert (found["many"].base, found["many"].many) == ("float", True)
    assert found["free"].base == "dict"


def test_expectations_in_words():
    found = options_of(Section, "section")
    assert found["words"].expected == "one of a, b"
    assert found["mixed"].expected.endswith("or one of auto")
    assert found["many"].expected == "a list of: a number"


def test_each_instance_has_its_own_mapping():
    assert Section().free is not Section().free
