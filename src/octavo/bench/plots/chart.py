"""Chart and Page: what is drawn, apart from how; and the registry of ways to draw it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from octavo.types.errors import ConfigError
from octavo.utils.registry import Registry

MAX_POINTS = 2000  # of a series; more are thinned out evenly


@dataclass(frozen=True)
class Series:
    """Points that belong together. `labels`, if any, name single points."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    style: Literal["line", "points", "both"] = "line"
    labels: Sequence[str] = ()

    def thinned(self) -> Series:
        """With at most about MAX_POINTS points, the first and the last among them."""
        step = math.ceil(len(self.xs) / MAX_POINTS)
        if step <= 1:
            return self
        kept = sorted({*range(0, len(self.xs), step), len(self.xs) - 1})
        return Series(
            self.name,
            [self.xs[i] for i in kept],
            [self.ys[i] for i in kept],
            self.style,
            [self.labels[i] for i in kept] if self.labels else (),
        )


@dataclass(frozen=True)
class Chart:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_y: bool = False


@dataclass(frozen=True)
class Page:
    """Charts and a few facts about where their figures come from."""

    title: str
    facts: Sequence[tuple[str, str]]
    charts: Sequence[Chart]


WRITERS: Registry[Callable[[Page, Path], None]] = Registry(
    "plot format",
    {
        ".html": "octavo.bench.plots.html:write",
        ".png": "octavo.bench.plots.png:write",
    },
)


def check_plot(path: str) -> None:
    """Raises ConfigError for a file whose format can't be written."""
    find_writer(path)


def find_writer(path: str) -> Callable[[Page, Path], None]:
    """What writes a file of such a name. Raises ConfigError."""
    suffix = Path(path).suffix.lower()
    if suffix not in WRITERS:
        raise ConfigError(f"plot={path!r}: the name ends in one of {', '.join(WRITERS.names())}")
    try:
        return WRITERS.get(suffix)
    except ImportError as error:
        raise ConfigError(
            f"plot={path!r} needs a package that is not installed ({error}); install "
            "octavo[bench], or write an .html file"
        ) from None


def save_page(page: Page, path: str) -> None:
    """Draw a page into a file; its format goes by the name. Raises ConfigError."""
    write = find_writer(path)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write(page, Path(path))


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers that cover [low, high]."""
    if not high > low:
        high = low + (abs(low) or 1.0)
    raw = (high - low) / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5 of the decades that cover [low, high]; low > 0. Decades only, if they are many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(max(high, low * 1.001)))
    factors = (1,) if last - first > 3 else (1, 2, 5)
    values = [10.0**d * factor for d in range(first, last) for factor in factors] + [10.0**last]
    begin = max((i for i, v in enumerate(values) if v <= low * 1.0001), default=0)
    end = next((i for i, v in enumerate(values) if v >= high * 0.9999), len(values) - 1)
    return values[begin : max(end, begin + 1) + 1]


def shown(value: float) -> str:
    """A tick's text."""
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.0e}"
    return f"{value:,.6g}"
