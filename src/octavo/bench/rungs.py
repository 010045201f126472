"""Rung: one case of the ladder, read from a word such as `decode:32x256/128`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.types.errors import ConfigError

# The figures of each kind: name -> (unit, whether more is better).
FIGURES: dict[str, dict[str, tuple[str, bool]]] = {
    "decode": {"time per token": ("ms", False)},
    "prefill": {"time": ("ms", False), "input": ("tok/s", True)},
    "batch": {"output": ("tok/s", True)},
    "prefix": {"time": ("s", False)},
    "start": {"time": ("s", False)},
    "serve": {
        "output": ("tok/s", True),
        "TTFT mean": ("ms", False),
        "TTFT median": ("ms", False),
        "TPOT median": ("ms", False),
        "ITL p99": ("ms", False),
    },
    "host": {"share of the step": ("", False), "idle between steps": ("ms", False)},
}

LADDERS = {
    "gpu": (
        "start:cold start:warm decode:1x256/128 decode:32x256/128 decode:256x256/128 "
        "batch:256x100-1024/100-1024 prefill:1x1024 prefill:1x8192 prefill:1x32768 "
        "prefill:400x1024 prefix:8192+128x64/64 decode:1x32768+31x512/256 decode:32x8192/128 "
        "host:256x256 serve:1x512/128 serve:64x1024/256"
    ),
    "cpu": (
        "start:warm decode:1x128/32 decode:8x128/32 batch:1x128/128 batch:8x128/128 "
        "batch:64x128/128 prefill:1x128 prefill:8x128 prefix:256+8x32/16 decode:1x1024+7x64/32 "
        "host:8x64 serve:4x128/32"
    ),
}

_HELP = (
    "write KIND:COUNTxLENGTH[+COUNTxLENGTH][/OUTPUT], lengths in tokens, N or LOW-HIGH; "
    "prefix:SHARED+COUNTxOWN/OUTPUT; start:cold or start:warm; or the name of a ladder: "
    f"{', '.join(LADDERS)}"
)
_DEFAULT_OUTPUT = {"decode": 128, "batch": 128, "prefill": 1, "prefix": 64, "serve": 128, "host": 1}


@dataclass(frozen=True, slots=True)
class Lengths:
    """Numbers of tokens from `low` to `high`, each as likely as the others."""

    low: int
    high: int

    @property
    def mean(self) -> float:
        """Expected value."""
        return (self.low + self.high) / 2

    @property
    def mean_square(self) -> float:
        """Expected square (of the continuous distribution)."""
        return (self.low**2 + self.low * self.high + self.high**2) / 3

    def __str__(self) -> str:
        return f"{self.low}" if self.low == self.high else f"{self.low}-{self.high}"


@dataclass(frozen=True, slots=True)
class Group:
    """So many requests whose prompts have such lengths."""

    count: int
    lengths: Lengths


@dataclass(frozen=True, slots=True)
class Rung:
    """One case. `word` is how it was written, and its name in every result."""

    word: str
    kind: str
    groups: tuple[Group, ...] = ()
    output: Lengths = Lengths(1, 1)
    shared: int = 0  # tokens that all prompts begin with
    cold: bool = False  # of a start: without compiled kernels

    @property
    def count(self) -> int:
        """Requests."""
        return sum(group.count for group in self.groups)

    @property
    def figures(self) -> dict[str, tuple[str, bool]]:
        """What it measures: name -> (unit, whether more is better)."""
        every = FIGURES[self.kind]
        if self.kind == "prefill":
            name = "time" if self.count == 1 else "input"
            return {name: every[name]}
        return every


def parse_rungs(words: Sequence[str]) -> list[Rung]:
    """The rungs of words, names of ladders written out, none twice. Raises ConfigError."""
    flat = [part for word in words for part in LADDERS.get(word, word).split()]
    return [parse_rung(word) for word in dict.fromkeys(flat)]


def parse_rung(word: str) -> Rung:
    """A rung from its word. Raises ConfigError."""
    kind, _, body = word.partition(":")
    if kind not in FIGURES:
        raise ConfigError(f"rungs: there is no {kind!r}; kinds are {', '.join(FIGURES)}; {_HELP}")
    if kind == "start":
        if body not in ("cold", "warm"):
            raise ConfigError(f"rungs: {word!r}: write start:cold or start:warm")
        return Rung(word, kind, cold=body == "cold")
    prompts, slash, output = body.partition("/")
    parts = prompts.split("+")
    shared = _number(word, parts.pop(0)) if kind == "prefix" else 0
    if not parts or (kind == "prefill" and slash):
        raise ConfigError(f"rungs: {word!r}: {_HELP}")
    groups = tuple(_group(word, part) for part in parts)
    default = _DEFAULT_OUTPUT[kind]
    lengths = _lengths(word, output) if slash else Lengths(default, default)
    return Rung(word, kind, groups, lengths, shared)


def _group(word: str, text: str) -> Group:
    count, _, lengths = text.partition("x")
    return Group(_number(word, count), _lengths(word, lengths))


def _lengths(word: str, text: str) -> Lengths:
    low, dash, high = text.partition("-")
    lengths = Lengths(_number(word, low), _number(word, high if dash else low))
    if lengths.low > lengths.high:
        raise ConfigError(f"rungs: {word!r}: {text} goes down")
    return lengths


def _number(word: str, text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", text):
        raise ConfigError(f"rungs: {word!r}: {text!r} is no whole number > 0; {_HELP}")
    return int(text)
