"""Ticks, thinning and the choice of a format."""

import math

import pytest

from octavo.bench.plots.chart import (
    MAX_POINTS,
    WRITERS,
    Page,
    Series,
    check_plot,
    log_ticks,
    save_page,
    shown,
    ticks,
)
from octavo.types.errors import ConfigError


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (0, 0.7, [0, 0.2, 0.4, 0.6, 0.8]), (5, 5, [5, 6, 7, 8, 9, 10]),
     (-3, 12, [-5, 0, 5, 10, 15]), (0, 0, [0, 0.2, 0.4, 0.6, 0.8, 1])],
)  # fmt: skip
def test_ticks_are_round_and_cover(low, high, expected):
    assert ticks(low, high) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(3, 40, [2, 5, 10, 20, 50]), (1, 100, [1, 2, 5, 10, 20, 50, 100]), (7, 7, [5, 10]),
     (0.002, 900, [0.001, 0.01, 0.1, 1, 10, 100, 1000]), (10, 10, [10, 20])],
)  # fmt: skip
def test_logarithmic_ticks(low, high, expected):
    assert log_ticks(low, high) == pytest.approx(expected)


def test_ticks_of_anything_cover_it():
    for exponent in range(-6, 7):
        for mantissa in (1, 1.3, 2.7, 6, 9.9):
            high = mantissa * 10.0**exponent
            assert ticks(0, high)[-1] >= high * 0.999999
            assert 3 <= len(ticks(0, high)) <= 8
            found = log_ticks(high / 50, high)
            assert found[0] <= high / 50 * 1.001
            assert found[-1] >= high * 0.999


def test_long_series_are_thinned_to_both_ends():
    series = Series("s", list(range(50_001)), list(range(50_001)), labels=["x"] * 50_001)
    thin = series.thinned()
    assert len(thin.xs) == len(thin.ys) == len(thin.labels) <= MAX_POINTS + 1
    assert (thin.xs[0], thin.xs[-1]) == (0, 50_000)
    short = Series("s", [1.0], [math.pi])
    assert short.thinned() is short


def test_names_decide_the_format(tmp_path):
    with pytest.raises(ConfigError, match=r"\.html, \.png"):
        check_plot("chart.pdf")
    check_plot("deep/CHART.HTML")
    save_page(Page("t", [], []), str(tmp_path / "deep" / "chart.html"))
    assert (tmp_path / "deep" / "chart.html").exists()


def test_a_format_whose_package_is_missing(monkeypatch):
    def get(name):
        raise ModuleNotFoundError("No module named 'matplotlib'")

    monkeypatch.setattr(WRITERS, "get", get)
    with pytest.raises(ConfigError, match=r"install octavo\[bench\]"):
        check_plot("chart.png")


def test_numbers():
    assert [shown(v) for v in (0, 12.5, 1200, 2e7, 0.0001)] == [
        "0", "12.5", "1,200", "2e+07", "1e-04"
    ]  # fmt: skip
