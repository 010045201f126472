"""Tables of made-up steps."""

import pytest

from octavo.bench.trace_steps import TracedStep
from octavo.bench.trace_tables import kernel_table, print_figures, print_kernels, step_figures
from octavo.utils.chrome_trace import Event

MS = 1_000_000


def event(name, begin, end, category="kernel", track="stream 7"):
    return Event("device 0", track, category, name, begin, end)


def step(number, begin, end, rows=2, decode_rows=2):
    """Computes from `begin` to `end`; the host takes 1 ms for each of its parts."""
    spans = {
        name: Event("engine core", "steps", "host", name, 0, MS)
        for name in ("schedule", "launch", "results", "update")
    }
    work = [event("gemm", begin, end - MS), event("norm", end - MS, end)]
    return TracedStep(number, rows, decode_rows, rows, spans, work, waited=MS)


def test_kernels_by_their_time():
    rows = kernel_table([step(1, 0, 9 * MS), step(2, 10 * MS, 21 * MS)])
    assert [row.name for row in rows] == ["gemm", "norm"]
    gemm, norm = rows
    assert (gemm.calls, gemm.total_ms, gemm.calls_per_step, gemm.ms_per_step) == (2, 18, 1, 9)
    assert norm.share == pytest.approx(0.1)
    assert norm.us_per_call == 1000


def test_operators_count_without_the_ones_they_call():
    work = [
        event("outer", 0, 100, "cpu_op"),
        event("inner", 10, 40, "cpu_op"),
        event("innermost", 20, 25, "cpu_op"),
        event("inner", 50, 60, "cpu_op"),
        event("next", 100, 110, "cpu_op"),
    ]
    rows = kernel_table([TracedStep(1, 1, 1, 1, {}, work)])
    times = {row.name: round(row.total_ms * 1e6) for row in rows}
    assert times == {"outer": 60, "inner": 35, "innermost": 5, "next": 10}


def test_kernels_that_overlap_on_a_stream_count_whole():
    work = [event("a", 0, 100), event("b", 90, 120)]
    rows = kernel_table([TracedStep(1, 1, 1, 1, {}, work)])
    assert {row.name: round(row.total_ms * 1e6) for row in rows} == {"a": 100, "b": 30}


def test_gaps_are_between_steps_in_a_row_of_one_kind():
    steps = [
        step(1, 0, 8 * MS),
        step(2, 10 * MS, 18 * MS),  # idle for 2 ms
        step(3, 19 * MS, 28 * MS, decode_rows=1),  # mixed
        step(4, 30 * MS, 38 * MS),
        step(6, 90 * MS, 98 * MS),  # after one that was cut off
        step(7, 97 * MS, 105 * MS),  # begins before the other has ended
    ]
    figures = step_figures(steps, "decode")
    assert figures.steps == 5
    assert figures.gap_mean_ms == 1.0
    assert figures.period_ms == 8.5
    assert figures.device_ms == figures.busy_ms == 8.0
    assert figures.host_ms == 3.0
    assert figures.host_share == pytest.approx(3 / 8.5)
    assert figures.parts_ms["waiting"] == 1.0
    assert step_figures(steps, "mixed") is None
    assert step_figures(steps, "prefill") is None


def test_what_is_printed(capsys):
    steps = [step(1, 0, 8 * MS), step(2, 10 * MS, 18 * MS)]
    print_kernels(kernel_table(steps), top=1)
    print_figures(step_figures(steps, "decode"))
    shown = capsys.readouterr().out
    assert "gemm" in shown
    assert "1 others" in shown
    assert "mean 2.0000 ms" in shown
    assert "30.0% of the period" in shown
