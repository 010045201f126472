"""Tables and charts of made-up points."""

import csv

from octavo.bench.sweep_points import Load, Point
from octavo.bench.sweep_report import best_points, make_page, print_table, write_csv


def point(setting, streams, rate, ttft, itl):
    figures = {"output_throughput": rate, "median_ttft_ms": ttft, "p99_itl_ms": itl}
    return Point(setting, Load("concurrency", streams), figures)


SMALL, LARGE = {"max_num_batched_tokens": "256"}, {"max_num_batched_tokens": "2048"}
POINTS = [
    point(SMALL, 1, 50.0, 100.0, 10.0),
    point(SMALL, 8, 300.0, 900.0, 20.0),
    point(LARGE, 1, 50.0, 80.0, 10.0),
    point(LARGE, 8, 320.0, 500.0, 90.0),
]


def test_best_points_are_those_that_nothing_beats():
    assert best_points(POINTS, "median_ttft_ms") == [POINTS[2], POINTS[3]]
    assert best_points(POINTS, "p99_itl_ms") == [POINTS[0], POINTS[1], POINTS[2], POINTS[3]]
    assert best_points(POINTS, "p95_ttft_ms") == []


def test_the_table(capsys):
    print_table(POINTS)
    head, first, *_, last = capsys.readouterr().out.splitlines()
    assert "TTFT p95" not in head
    assert "100.0 " in first
    assert "100.0*" not in first
    assert "500.0*" in last


def test_the_csv(tmp_path):
    write_csv(POINTS, tmp_path / "s.csv")
    with open(tmp_path / "s.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[1]["max_num_batched_tokens"] == "256"
    assert (rows[1]["load"], rows[1]["output_throughput"]) == ("8", "300.0")


def test_charts_have_a_line_per_setting_through_its_loads():
    page = make_page("t", [], list(reversed(POINTS)))
    ttft = page.charts[0]
    assert [series.name for series in ttft.series] == [
        "max_num_batched_tokens=2048", "max_num_batched_tokens=256"
    ]  # fmt: skip
    assert ttft.series[1].xs == [50.0, 300.0]
    assert ttft.series[1].labels[0] == "max_num_batched_tokens=256, 1 stream"
