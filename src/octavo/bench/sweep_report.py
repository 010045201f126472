"""A sweep's points as a table, a CSV file and charts of throughput against latency."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from octavo.bench.plots.chart import Chart, Page, Series
from octavo.bench.sweep_points import Point

THROUGHPUT = "output_throughput"
# Figure -> heading; those with less being better can be on a front.
COLUMNS = {
    THROUGHPUT: "out tok/s",
    "request_goodput": "good req/s",
    "median_ttft_ms": "TTFT p50",
    "p95_ttft_ms": "TTFT p95",
    "median_tpot_ms": "TPOT p50",
    "p99_itl_ms": "ITL p99",
    "median_e2el_ms": "E2EL p50",
}
LATENCIES = ("median_ttft_ms", "p95_ttft_ms", "median_tpot_ms", "p99_itl_ms")


def best_points(points: Sequence[Point], latency: str) -> list[Point]:
    """Those that no other point beats in throughput and in this latency alike."""
    measured = [p for p in points if latency in p.figures]
    return [
        p
        for p in measured
        if not any(
            q.figures[THROUGHPUT] >= p.figures[THROUGHPUT]
            and q.figures[latency] <= p.figures[latency]
            and (q.figures[THROUGHPUT], q.figures[latency])
            != (p.figures[THROUGHPUT], p.figures[latency])
            for q in measured
        )
    ]


def print_table(points: Sequence[Point]) -> None:
    """A line per point; a star at a latency that has none of the same throughput below it."""
    columns = {k: text for k, text in COLUMNS.items() if any(k in p.figures for p in points)}
    stars = {latency: best_points(points, latency) for latency in LATENCIES}
    rows = [["setting", "load", *columns.values()]]
    for point in points:
        row = [point.setting_name, str(point.load)]
        for name in columns:
            value = point.figures.get(name)
            star = "*" if point in stars.get(name, ()) else " "
            row.append("" if value is None else f"{value:,.1f}{star}")
        rows.append(row)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            text.ljust(width) if column < 2 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def write_csv(points: Sequence[Point], path: Path) -> None:
    """A row per point with every figure."""
    names = sorted({name for point in points for name in point.figures})
    knobs = sorted({name for point in points for name in point.setting})
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*knobs, "load_kind", "load", *names])
        for point in points:
            setting = [point.setting.get(name, "") for name in knobs]
            figures = [point.figures.get(name, "") for name in names]
            writer.writerow([*setting, point.load.kind, point.load.amount, *figures])


def make_page(title: str, facts: Sequence[tuple[str, str]], points: Sequence[Point]) -> Page:
    """Throughput against each latency, a line per setting through its loads."""
    charts = []
    for latency in LATENCIES:
        series = []
        for name in dict.fromkeys(point.setting_name for point in points):
            own = [p for p in points if p.setting_name == name and latency in p.figures]
            own.sort(key=lambda p: p.load.amount)
            series.append(
                Series(
                    name,
                    [p.figures[THROUGHPUT] for p in own],
                    [p.figures[latency] for p in own],
                    "both",
                    [f"{name}, {p.load}" for p in own],
                )
            )
        heading = f"{COLUMNS[latency]} against throughput"
        charts.append(Chart(heading, "output tokens/s", "ms", series, log_y=True))
    return Page(title, facts, charts)
