"""Charts of known results."""

from octavo.bench.http_client import Result
from octavo.bench.serve_plots import make_page

RESULTS = [
    Result(start=10.0, end=12.0, arrivals=[11.0, 12.0], output_tokens=2),
    Result(start=10.0, end=10.5, error="refused"),
    Result(start=11.0, end=14.0, arrivals=[11.5, 14.0], output_tokens=2),
]


def chart(page, title):
    (found,) = [c for c in page.charts if c.title.startswith(title)]
    return found.series[0]


def test_charts_show_what_was_measured():
    page = make_page("t", [], RESULTS)
    ttft = chart(page, "TTFT")
    assert (ttft.ys[0], ttft.ys[-1]) == (500.0, 1000.0)
    assert (ttft.xs[0], ttft.xs[-1]) == (0.0, 100.0)
    running = chart(page, "Requests in flight")
    assert max(running.ys) == 2
    assert running.ys[-1] == 1
    events = chart(page, "Events received")
    assert round(sum(events.ys) * (events.xs[1] - events.xs[0])) == 4
    by_time = chart(page, "Time to first token by")
    assert (by_time.xs, by_time.ys) == ([0.0, 1.0], [1000.0, 500.0])


def test_nothing_to_show():
    page = make_page("t", [], [RESULTS[1]])
    assert [c.series[0].ys for c in page.charts] == [[]] * 4
