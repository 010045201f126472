"""Pages as PNG files, by matplotlib."""

from __future__ import annotations

import math
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from octavo.bench.plots.chart import Chart, Page, log_ticks, shown

_COLUMNS = 2
_MARKERS = {"line": "-", "points": "o", "both": "o-"}


def write(page: Page, path: Path) -> None:
    """Write the page's charts, two in a row."""
    rows = math.ceil(len(page.charts) / _COLUMNS)
    columns = min(_COLUMNS, len(page.charts))
    figure = Figure(figsize=(7.0 * columns, 4.6 * rows + 0.8), layout="constrained")
    FigureCanvasAgg(figure)
    facts = "   ".join(f"{key}: {value}" for key, value in page.facts)
    figure.suptitle(f"{page.title}\n{facts[:180]}", fontsize=11)
    for index, chart in enumerate(page.charts):
        _draw(figure.add_subplot(rows, columns, index + 1), chart)
    figure.savefig(path, dpi=110)


def _draw(axes: Axes, chart: Chart) -> None:
    for series in chart.series:
        thin = series.thinned()
        axes.plot(thin.xs, thin.ys, _MARKERS[thin.style], label=thin.name, markersize=3)
    axes.set_title(chart.title, fontsize=10)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    values = [y for series in chart.series for y in series.ys if y > 0]
    if chart.log_y and values:
        axes.set_yscale("log")
        places = log_ticks(min(values), max(values))
        axes.set_yticks(places, labels=[shown(place) for place in places])
        axes.minorticks_off()
    else:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.grid(alpha=0.3)
    if any(series.xs for series in chart.series):
        axes.legend(fontsize=8)
