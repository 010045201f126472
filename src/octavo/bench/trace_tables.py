"""What a trace says in numbers: a table of kernels, and where the time between steps goes."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from octavo.bench.trace_steps import TracedStep
from octavo.utils.chrome_trace import Event

_NAME_WIDTH = 76


@dataclass(frozen=True)
class KernelRow:
    """One kernel (without a GPU: operator), over all steps of a kind."""

    name: str
    calls: int
    total_ms: float
    share: float  # of all kernels' time
    calls_per_step: float
    ms_per_step: float
    us_per_call: float


@dataclass(frozen=True)
class StepFigures:
    """Steps of one kind, times in milliseconds. Gaps and periods are between steps in a row."""

    kind: str
    steps: int
    rows: float  # mean
    tokens: float  # mean
    period_ms: float  # median, begin to begin
    device_ms: float  # median, first kernel's begin to last one's end
    busy_ms: float  # median, with something on the device
    gap_mean_ms: float  # device idle between a step and the next
    gap_p99_ms: float
    host_ms: float  # median host work, waiting left out
    host_share: float  # of the period
    parts_ms: dict[str, float]  # median, of each of the core's spans

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def kernel_table(steps: Sequence[TracedStep]) -> list[KernelRow]:
    """Kernels of the steps, the most expensive first; operators count without those they call."""
    times: defaultdict[str, int] = defaultdict(int)
    calls: defaultdict[str, int] = defaultdict(int)
    for step in steps:
        for event, own in _own_times(step.work):
            times[event.name] += own
            calls[event.name] += 1
    whole = sum(times.values()) or 1
    return [
        KernelRow(
            name=name,
            calls=calls[name],
            total_ms=time / 1e6,
            share=time / whole,
            calls_per_step=calls[name] / len(steps),
            ms_per_step=time / 1e6 / len(steps),
            us_per_call=time / 1e3 / calls[name],
        )
        for name, time in sorted(times.items(), key=lambda item: -item[1])
    ]


def _own_times(events: Iterable[Event]) -> Iterable[tuple[Event, int]]:
    """(event, its nanoseconds without those of events inside it on the same track)."""
    tracks: defaultdict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in events:
        tracks[event.process, event.track].append(event)
    for track in tracks.values():
        is_device = track[0].category != "cpu_op"
        inside: dict[int, int] = {}  # position in `ordered` -> nanoseconds of its children
        ordered = sorted(track, key=lambda e: (e.begin, -e.end))
        open_: list[int] = []
        for index, event in enumerate(ordered):
            while open_ and ordered[open_[-1]].end <= event.begin:
                open_.pop()
            if open_ and not is_device:
                inside[open_[-1]] = inside.get(open_[-1], 0) + event.duration
            open_.append(index)
        for index, event in enumerate(ordered):
            yield event, event.duration - inside.get(index, 0)


def step_figures(steps: Sequence[TracedStep], kind: str) -> StepFigures | None:
    """Figures of the steps of a kind; None if no two of them follow each other."""
    pairs = [
        (a, b)
        for a, b in itertools.pairwise(steps)
        if a.kind == b.kind == kind and b.number == a.number + 1
    ]
    if not pairs:
        return None
    own = [step for step in steps if step.kind == kind]
    times = {id(step): step.computing for step in own}
    periods = [times[id(b)][0] - times[id(a)][0] for a, b in pairs]
    gaps = [max(0, times[id(b)][0] - times[id(a)][1]) for a, b in pairs]
    host = float(np.median([step.host for step in own])) / 1e6
    period = float(np.median(periods)) / 1e6
    return StepFigures(
        kind=kind,
        steps=len(own),
        rows=float(np.mean([step.rows for step in own])),
        tokens=float(np.mean([step.tokens for step in own])),
        period_ms=period,
        device_ms=float(np.median([end - begin for begin, end in times.values()])) / 1e6,
        busy_ms=float(np.median([step.busy for step in own])) / 1e6,
        gap_mean_ms=float(np.mean(gaps)) / 1e6,
        gap_p99_ms=float(np.percentile(gaps, 99)) / 1e6,
        host_ms=host,
        host_share=host / period if period else 0.0,
        parts_ms={
            name: float(np.median([step.spans[name].duration for step in own])) / 1e6
            for name in own[0].spans
        }
        | {"waiting": float(np.median([step.waited for step in own])) / 1e6},
    )


def print_kernels(rows: Sequence[KernelRow], top: int) -> None:
    """The first `top` rows, and the rest as one."""
    print("   ms/step  share    calls  calls/step   us/call  name")
    for row in rows[:top]:
        print(
            f"{row.ms_per_step:10.4f} {row.share:6.1%} {row.calls:8d} {row.calls_per_step:11.1f} "
            f"{row.us_per_call:9.2f}  {row.name[:_NAME_WIDTH]}"
        )
    rest = rows[top:]
    if rest:
        time, share = sum(r.ms_per_step for r in rest), sum(r.share for r in rest)
        calls = sum(r.calls for r in rest)
        print(f"{time:10.4f} {share:6.1%} {calls:8d} {'':21}  {len(rest)} others")
    total, launches = sum(r.ms_per_step for r in rows), sum(r.calls_per_step for r in rows)
    print(f"{total:10.4f} {'':15} {launches:11.1f} {'':9}  all")


def print_figures(figures: StepFigures) -> None:
    """A few lines about the steps of a kind."""
    f = figures
    print(f"{f.kind} steps: {f.steps}, of {f.rows:.0f} rows and {f.tokens:.0f} tokens")
    print(
        f"  period {f.period_ms:.3f} ms (median); first kernel to last {f.device_ms:.3f}, "
        f"device busy {f.busy_ms:.3f}"
    )
    print(f"  device idle between steps: mean {f.gap_mean_ms:.4f} ms, p99 {f.gap_p99_ms:.4f} ms")
    parts = ", ".join(f"{name} {value:.3f}" for name, value in f.parts_ms.items())
    print(f"  host work {f.host_ms:.3f} ms a step, {f.host_share:.1%} of the period ({parts})")
