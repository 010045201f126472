"""Events of a made-up trace, sorted into the steps that caused them."""

import pytest

from octavo.bench.trace_steps import covered, sort_into_steps
from octavo.utils.chrome_trace import Event


def span(name, step, begin, end, **facts):
    return Event("engine core", "steps", "host", name, begin, end, {"step": step, **facts})


def call(name, correlation, begin, end):
    args = {"correlation": correlation}
    return Event("worker 0", "CUDA calls", "cuda_runtime", name, begin, end, args)


def kernel(name, correlation, begin, end, category="kernel", stream=7):
    args = {"correlation": correlation}
    return Event("device 0", f"stream {stream}", category, name, begin, end, args)


def step(number, at, rows=4, decode_rows=4, tokens=4):
    """The host's part of a step of 100 ns, of which it waits 30."""
    facts = {"rows": rows, "decode_rows": decode_rows, "tokens": tokens}
    return [
        span("schedule", number, at, at + 10, **facts),
        span("launch", number, at + 10, at + 30),
        call("cudaGraphLaunch", number, at + 15, at + 20),
        span("results", number, at + 50, at + 90),
        call("cudaEventSynchronize", 1000 + number, at + 40, at + 80),
        span("update", number, at + 90, at + 100),
    ]


def test_kernels_belong_to_the_step_that_launched_them_not_the_one_they_ran_in():
    events = [
        *step(1, 0),
        *step(2, 100),
        kernel("a", 1, 25, 60),
        kernel("b", 1, 60, 115),  # while the host is in step 2's launch
        kernel("a", 2, 130, 150),
        kernel("copy", 2, 120, 125, "gpu_memcpy", stream=8),
        kernel("stray", 77, 26, 27),
    ]
    first, second = sort_into_steps(events)
    assert [e.name for e in first.work] == ["a", "b"]
    assert [e.name for e in second.work] == ["a", "copy"]
    assert first.computing == (25, 115)
    assert second.computing == (130, 150)
    assert (first.busy, second.busy) == (90, 25)


def test_host_work_leaves_waiting_out():
    (only,) = sort_into_steps([*step(1, 0), kernel("a", 1, 25, 60)])
    assert only.waited == 30  # of the 40 in which it waited, 10 before it asked for results
    assert only.host == 10 + 20 + 40 + 10 - 30


def test_operators_of_a_cpu_are_the_devices_work():
    operators = [
        Event("device 0", "forward", "cpu_op", "forward", 12, 28),
        Event("device 0", "forward", "cpu_op", "mm", 14, 20),
        Event("device 0", "forward", "cpu_op", "elsewhere", 34, 36),
    ]
    (only,) = sort_into_steps([*step(1, 0)[:2], *step(1, 0)[3:4], *step(1, 0)[5:], *operators])
    assert [e.name for e in only.work] == ["forward", "mm"]
    assert only.host == 10 + 20 + 40 + 10 - 16


def test_steps_that_were_cut_off_are_left_out():
    half = [event for event in step(3, 200) if event.name != "update"]
    events = [*step(1, 0), *half, kernel("a", 1, 25, 60), kernel("a", 3, 225, 260)]
    assert [s.number for s in sort_into_steps(events)] == [1]
    assert sort_into_steps(step(1, 0)) == []


@pytest.mark.parametrize(
    ("rows", "decode_rows", "kind"), [(4, 4, "decode"), (4, 3, "mixed"), (2, 0, "prefill")]
)
def test_kinds(rows, decode_rows, kind):
    (only,) = sort_into_steps([*step(1, 0, rows, decode_rows), kernel("a", 1, 25, 60)])
    assert only.kind == kind


def test_covered_counts_overlaps_once():
    assert covered([(0, 10), (5, 15), (20, 30), (22, 25), (30, 31)]) == 26
    assert covered([]) == 0
