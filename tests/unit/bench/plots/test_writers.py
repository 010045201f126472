"""Pages as files: well-formed, complete, and without anything to fetch."""

import re
import xml.etree.ElementTree as ET

import pytest

from octavo.bench.plots.chart import Chart, Page, Series, save_page
from octavo.bench.plots.html import svg

CHARTS = [
    Chart("Rate <1>", "s", "tok/s", [
        Series("a & b", [0.0, 1.0, 2.0], [5.0, 9.0, 7.0], "both", ["x", "y", "<z>"]),
        Series("flat", [0.0, 2.0], [4.0, 4.0]),
    ]),
    Chart("Latency", "percent", "ms", [Series("p", [0.0, 50.0], [0.0, 20.0])], log_y=True),
    Chart("Nothing", "s", "s", [Series("none", [], [])]),
]  # fmt: skip
PAGE = Page("Results & more", [("model", "<m>"), ("rate", "3")], CHARTS)


def shapes(element, name):
    return element.findall(f".//{name}")


def test_svg_of_a_chart():
    root = ET.fromstring(svg(CHARTS[0]))
    assert len(shapes(root, "polyline")) == 2
    assert len(shapes(root, "circle")) == 3
    assert [t.text for t in root.iter("title")] == ["Rate <1>", "x: 0, 5", "y: 1, 9", "<z>: 2, 7"]
    texts = [t.text for t in shapes(root, "text")]
    assert {"s", "tok/s", "a & b", "flat"} <= set(texts)
    # The highest point is drawn highest, and everything inside the picture.
    heights = [float(c.get("cy")) for c in shapes(root, "circle")]
    assert heights[1] == min(heights)
    _, _, width, height = map(float, root.get("viewBox").split())
    for line in shapes(root, "polyline"):
        for x, y in (point.split(",") for point in line.get("points").split()):
            assert 0 <= float(x) <= width
            assert 0 <= float(y) <= height


def test_a_logarithmic_axis_leaves_out_what_it_cannot_show():
    root = ET.fromstring(svg(CHARTS[1]))
    (line,) = shapes(root, "polyline")
    assert len(line.get("points").split()) == 1


@pytest.mark.parametrize("chart", CHARTS)
def test_every_chart_is_well_formed(chart):
    ET.fromstring(svg(chart))


def test_a_page_needs_nothing_else(tmp_path):
    path = tmp_path / "page.html"
    save_page(PAGE, str(path))
    text = path.read_text()
    assert text.count("<svg") == 3
    assert "&lt;m&gt;" in text
    assert "<m>" not in text
    assert not re.search(r"https?://|src=|href=|<script|@import|url\(", text)


def test_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "page.png"
    save_page(PAGE, str(path))
    assert path.read_bytes().startswith(b"\x89PNG")
