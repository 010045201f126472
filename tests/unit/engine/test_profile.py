"""The trace of a core: its own spans, its workers' files and the front end's spans in one file."""

from pathlib import Path

import pytest

from octavo.engine.profile import CoreProfiler, describe_schedule, describe_step_argument
from octavo.types.errors import OctavoError
from octavo.types.scheduler_output import SchedulerOutput
from octavo.utils.chrome_trace import ChromeTrace, Event


class TwoWorkers:
    """An executor whose workers write a trace each."""

    def __init__(self):
        self.calls = []

    def collective_rpc(self, method, args=()):
        self.calls.append((method, *args))
        if method == "start_profile":
            return [None, None]
        paths = []
        for rank in range(2):
            path = Path(f"{args[0]}.rank{rank}")
            event = Event(f"device {rank}", "stream 7", "kernel", "gemm", 5_000, 6_000)
            ChromeTrace([event]).save(path)
            paths.append(str(path))
        return paths


class Core:
    def step(self, step):
        return step


@pytest.fixture
def profiled():
    executor, core = TwoWorkers(), Core()
    profiler = CoreProfiler(
        executor, lambda spans: spans.watch(core, "step", "launch", describe_step_argument)
    )
    return profiler, executor, core


def test_everything_is_in_one_file(profiled, tmp_path):
    profiler, executor, core = profiled
    core.step(SchedulerOutput(step_id=1))
    profiler.start()
    core.step(SchedulerOutput(step_id=2))
    path = Path(profiler.stop(str(tmp_path / "deep"), [["process outputs", 1_000, 2_000, {}]]))
    core.step(SchedulerOutput(step_id=3))
    events = {(e.process, e.name): e for e in ChromeTrace.load(path).events}
    assert events.keys() == {
        ("front end", "process outputs"), ("engine core", "launch"), ("device 0", "gemm"),
        ("device 1", "gemm"),
    }  # fmt: skip
    assert events["engine core", "launch"].args == {"step": 2}
    assert [call[0] for call in executor.calls] == ["start_profile", "stop_profile"]
    assert list(path.parent.iterdir()) == [path]


def test_start_and_stop_come_in_turn(profiled, tmp_path):
    profiler, executor, _ = profiled
    with pytest.raises(OctavoError, match="start one first"):
        profiler.stop(str(tmp_path))
    profiler.start()
    with pytest.raises(OctavoError, match="already"):
        profiler.start()
    profiler.stop(str(tmp_path))
    profiler.start()
    assert [call[0] for call in executor.calls] == [
        "start_profile",
        "stop_profile",
        "start_profile",
    ]


def test_what_a_step_says():
    step = SchedulerOutput(
        step_id=7, slots=[1, 2, 3], num_decode_rows=2, total_num_scheduled_tokens=40
    )
    facts = {"step": 7, "rows": 3, "decode_rows": 2, "tokens": 40}
    assert describe_schedule((), step) == facts
