"""Pages as one HTML file: inline SVG, no script, nothing fetched."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from octavo.bench.plots.chart import Chart, Page, Series, log_ticks, shown, ticks

_WIDTH, _HEIGHT = 640, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 16, 16, 52
_LEGEND_LINE = 18
# Told apart with the common kinds of colour blindness (Okabe and Ito).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a7a00", "#999999")
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --text: CanvasText; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 84rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1rem; margin: 0 0 .25rem; }
dl { display: grid; grid-template-columns: max-content auto; gap: 0 1rem; }
dt { opacity: .7; } dd { margin: 0; overflow-wrap: anywhere; }
main { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 2rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--text); font-size: 12px; }
.grid { stroke: var(--line); }
"""


def write(page: Page, path: Path) -> None:
    """Write the page."""
    facts = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in page.facts)
    charts = "".join(
        f"<section><h2>{escape(chart.title)}</h2>{svg(chart)}</section>" for chart in page.charts
    )
    title = escape(page.title)
    path.write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{title}</h1><dl>{facts}</dl><main>{charts}</main></body></html>\n",
        encoding="utf-8",
    )


def svg(chart: Chart) -> str:
    """A chart as an SVG element."""
    series = [each.thinned() for each in chart.series if each.xs]
    if chart.log_y:
        series = [_positive(each) for each in series]
    xs = [x for each in series for x in each.xs] or [0.0, 1.0]
    ys = [y for each in series for y in each.ys] or [0.1, 1.0]
    x_ticks = ticks(min(xs), max(xs), 6)
    y_ticks = log_ticks(min(ys), max(ys)) if chart.log_y else ticks(min(0.0, *ys), max(ys))
    height = _HEIGHT + _LEGEND_LINE * len(series)
    bottom = _HEIGHT - _BOTTOM
    place_x = _scale(x_ticks, _LEFT, _WIDTH - _RIGHT, log=False)
    place_y = _scale(y_ticks, bottom, _TOP, log=chart.log_y)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img"><title>{escape(chart.title)}</title>'
    ]
    for x in x_ticks:
        at = place_x(x)
        parts.append(_rule(at, _TOP, at, bottom))
        parts.append(_text(at, bottom + 18, shown(x), "middle"))
    for y in y_ticks:
        at = place_y(y)
        parts.append(_rule(_LEFT, at, _WIDTH - _RIGHT, at))
        parts.append(_text(_LEFT - 8, at + 4, shown(y), "end"))
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, bottom + 40, chart.x_label, "middle"))
    middle = (_TOP + bottom) / 2
    turned = f' transform="rotate(-90 14 {middle:.0f})"'
    parts.append(_text(14, middle, chart.y_label, "middle", turned))
    for index, each in enumerate(series):
        colour = _COLOURS[index % len(_COLOURS)]
        parts.append(_drawn(each, colour, place_x, place_y))
        at = _HEIGHT + _LEGEND_LINE * index
        parts.append(f'<rect x="{_LEFT}" y="{at}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(_LEFT + 18, at + 10, each.name, "start"))
    return "".join([*parts, "</svg>"])


def _positive(series: Series) -> Series:
    """What a logarithmic axis can show."""
    kept = [i for i, y in enumerate(series.ys) if y > 0]
    labels = [series.labels[i] for i in kept] if series.labels else ()
    return Series(
        series.name,
        [series.xs[i] for i in kept],
        [series.ys[i] for i in kept],
        series.style,
        labels,
    )


def _scale(
    tick_values: Sequence[float], low: float, high: float, *, log: bool
) -> Callable[[float], float]:
    """From values to coordinates; the outermost ticks are at `low` and `high`."""
    turn: Callable[[float], float] = math.log10 if log else float
    first, last = turn(tick_values[0]), turn(tick_values[-1])
    return lambda value: low + (turn(value) - first) / (last - first) * (high - low)


def _drawn(
    series: Series,
    colour: str,
    place_x: Callable[[float], float],
    place_y: Callable[[float], float],
) -> str:
    points = [(place_x(x), place_y(y)) for x, y in zip(series.xs, series.ys, strict=True)]
    parts = []
    if series.style != "points":
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
        )
    if series.style != "line":
        for index, (x, y) in enumerate(points):
            values = f"{shown(series.xs[index])}, {shown(series.ys[index])}"
            label = f"{series.labels[index]}: {values}" if series.labels else values
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" fill-opacity="0.7">'
                f"<title>{escape(label)}</title></circle>"
            )
    return "".join(parts)


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'
