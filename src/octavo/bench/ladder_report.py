"""LadderReport: floors, figures and ratios of a ladder, as JSON and as a table."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.bench.ladder_run import Measured
from octavo.bench.rungs import Rung
from octavo.types.errors import ConfigError


@dataclass(frozen=True)
class Line:
    """One figure of one rung."""

    rung: str
    figure: str
    unit: str
    more_is_better: bool
    floor: float | None  # the least time, or the most tokens per second
    values: tuple[tuple[float, ...], ...]  # per side and repetition
    other: float | None = None  # median of the first side in the file compared with

    @property
    def share(self) -> float | None:
        """The floor's share of the measured time (of the bound, what was reached)."""
        if self.floor is None or not self.values[0]:
            return None
        return _ratio(statistics.median(self.values[0]), self.floor, self.more_is_better)

    def gain(self, other: float | None) -> float | None:
        """How many times better than `other` the first side is."""
        if other is None or not self.values[0]:
            return None
        return _ratio(statistics.median(self.values[0]), other, self.more_is_better)

    def medians(self) -> list[float | None]:
        """Per side."""
        return [statistics.median(values) if values else None for values in self.values]


def _ratio(own: float, other: float, more_is_better: bool) -> float | None:
    dividend, divisor = (own, other) if more_is_better else (other, own)
    return dividend / divisor if divisor else None


def make_lines(
    rungs: Sequence[Rung],
    results: Sequence[Mapping[str, Measured]],
    floors: Mapping[str, Mapping[str, float]],
    compared: Mapping[tuple[str, str], float],
) -> list[Line]:
    """A line per figure that some side has; `floors` by rung and figure."""
    lines = []
    for rung in rungs:
        for figure, (unit, more) in rung.figures.items():
            values = tuple(
                tuple(side[rung.word].values.get(figure, ())) if rung.word in side else ()
                for side in results
            )
            if any(values):
                floor = floors.get(rung.word, {}).get(figure)
                other = compared.get((rung.word, figure))
                lines.append(Line(rung.word, figure, unit, more, floor, values, other))
    return lines


def to_json(lines: Sequence[Line], results: Sequence[Mapping[str, Measured]]) -> list[Any]:
    """The lines as plain data, with each side's clocks."""
    return [
        {
            "rung": line.rung,
            "figure": line.figure,
            "unit": line.unit,
            "more_is_better": line.more_is_better,
            "floor": line.floor,
            "share_of_floor": line.share,
            "sides": [
                {
                    "values": list(values),
                    "median": median,
                    "clocks": side[line.rung].clocks if line.rung in side else {},
                }
                for values, median, side in zip(line.values, line.medians(), results, strict=True)
            ],
        }
        for line in lines
    ]


def read_compared(path: str) -> dict[tuple[str, str], float]:
    """(rung, figure) -> median of the first side in a ladder's file. Raises ConfigError."""
    try:
        lines = json.loads(Path(path).read_text(encoding="utf-8"))["ladder"]
        medians = {(line["rung"], line["figure"]): line["sides"][0]["median"] for line in lines}
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ConfigError(
            f"compare={path!r} is no result of octavo bench ladder: {type(error).__name__}: {error}"
        ) from None
    return {key: median for key, median in medians.items() if median is not None}


def print_table(lines: Sequence[Line], names: Sequence[str], compared: str | None) -> None:
    """Floor, medians with their spread, and how many times better the first side is."""
    head = ["rung", "figure", "floor", f"{names[0]} (low-high, runs)", "of floor"]
    for name in names[1:]:
        head += [name, "gain"]
    if compared is not None:
        head += [Path(compared).name, "gain"]
    rows = [head]
    for line in lines:
        unit = f" {line.unit}" if line.unit else ""
        medians = line.medians()
        row = [line.rung, line.figure + unit, _number(line.floor), _spread(line.values[0])]
        row.append("" if line.share is None else f"{line.share:.0%}")
        for values, median in zip(line.values[1:], medians[1:], strict=True):
            row += [_spread(values), _times(line.gain(median))]
        if compared is not None:
            row += [_number(line.other), _times(line.gain(line.other))]
        rows.append(row)
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        left = [text.ljust(width) for text, width in zip(row[:2], widths, strict=False)]
        right = [text.rjust(width) for text, width in zip(row[2:], widths[2:], strict=True)]
        print("  ".join(left + right).rstrip())


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    middle = _number(statistics.median(values))
    return f"{middle} ({_number(min(values))}-{_number(max(values))}, {len(values)})"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}x"


def _number(value: float | None) -> str:
    """Four digits that mean something."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    digits = 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3
    return f"{value:.{digits}f}"
