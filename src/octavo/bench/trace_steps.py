"""TracedStep: the events of a trace sorted by the step that they belong to."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from octavo.utils.chrome_trace import Event

DEVICE_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_CALLS = frozenset({"cuda_runtime", "cuda_driver"})
_OPERATORS = "cpu_op"
_WAITS = ("Synchronize",)  # in the names of calls that wait for the device

Interval = tuple[int, int]


@dataclass
class TracedStep:
    """One step: the core's spans of it, what its launch had the device do, and when.

    Without a GPU the operators of the forward pass are the work of the device.
    """

    number: int
    rows: int
    decode_rows: int
    tokens: int
    spans: dict[str, Event]  # schedule, launch, results, update
    work: list[Event] = field(default_factory=list)
    waited: int = 0  # nanoseconds of `results` in which the host waited for the device

    @property
    def kind(self) -> str:
        """decode, prefill or mixed."""
        if self.decode_rows == self.rows:
            return "decode"
        return "mixed" if self.decode_rows else "prefill"

    @property
    def computing(self) -> Interval:
        """From the begin of its first kernel to the end of its last one."""
        kernels = [e for e in self.work if e.category in ("kernel", _OPERATORS)] or self.work
        return min(e.begin for e in kernels), max(e.end for e in kernels)

    @property
    def busy(self) -> int:
        """Nanoseconds in which the device did something for this step."""
        return covered((e.begin, e.end) for e in self.work)

    @property
    def host(self) -> int:
        """Nanoseconds of host work: all of the core's spans but waiting and the CPU's operators."""
        on_cpu = covered((e.begin, e.end) for e in self.work if e.category == _OPERATORS)
        return sum(span.duration for span in self.spans.values()) - self.waited - on_cpu


def covered(intervals: Iterable[Interval]) -> int:
    """Length of the union of intervals."""
    total = 0
    reached: int | None = None
    for begin, end in sorted(intervals):
        if reached is None or end > reached:
            total += end - (begin if reached is None else max(begin, reached))
            reached = end
    return total


def sort_into_steps(events: Sequence[Event]) -> list[TracedStep]:
    """The complete steps of a trace that used the device, in order.

    A kernel belongs to the step whose launch made the driver call that the kernel correlates
    with; an operator to the step in whose launch it ran.
    """
    steps = _steps_of_spans([e for e in events if e.category == "host" and "step" in e.args])
    launches = sorted(
        ((step.spans["launch"], step) for step in steps), key=lambda pair: pair[0].begin
    )
    begins = [launch.begin for launch, _ in launches]

    def step_at(time: int) -> TracedStep | None:
        index = bisect.bisect_right(begins, time) - 1
        found = index >= 0 and time <= launches[index][0].end
        return launches[index][1] if found else None

    call_times: dict[int, int] = {}
    waits: list[Interval] = []
    for event in events:
        if event.category in _CALLS:
            if "correlation" in event.args:
                call_times[event.args["correlation"]] = event.begin
            if any(word in event.name for word in _WAITS):
                waits.append((event.begin, event.end))
    for event in events:
        if event.category in DEVICE_CATEGORIES:
            time = call_times.get(event.args.get("correlation", -1))
        elif event.category == _OPERATORS:
            time = event.begin
        else:
            continue
        step = None if time is None else step_at(time)
        if step is not None:
            step.work.append(event)
    for step in steps:
        results = step.spans["results"]
        step.waited = covered(
            (max(begin, results.begin), min(end, results.end))
            for begin, end in waits
            if begin < results.end and end > results.begin
        )
    return [step for step in steps if step.work]


def _steps_of_spans(spans: Iterable[Event]) -> list[TracedStep]:
    """Steps whose four spans were all recorded."""
    named: dict[int, dict[str, Event]] = {}
    for span in spans:
        named.setdefault(span.args["step"], {})[span.name] = span
    steps = []
    for number, found in sorted(named.items()):
        if found.keys() >= {"schedule", "launch", "results", "update"}:
            facts = found["schedule"].args
            step = TracedStep(number, facts["rows"], facts["decode_rows"], facts["tokens"], found)
            steps.append(step)
    return steps
