"""CudaGraphRunner: which graph a step replays, and when one is captured, with a device made up."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch

from octavo.platforms.cpu import CpuPlatform
from octavo.sampling.interface import Variant
from octavo.types.platform_info import PlatformInfo
from octavo.types.scheduler_output import SchedulerOutput
from octavo.worker.graphs import CudaGraphRunner, GraphSizes
from octavo.worker.step import StepPlan, StepResult


@dataclass
class FakeHead:
    """Says what it is told to say, and keeps what it is told."""

    now: Variant = Variant.GREEDY
    tables: object = None
    accounted: list[Variant] = field(default_factory=list)

    def variant(self, plan):
        return self.now

    def binding(self, variant):
        return self.tables if variant is Variant.EDITED else None

    def account(self, plan, variant):
        self.accounted.append(variant)

    def warm_up(self):
        self.accounted.clear()


class FakeStep:
    """Counts the device's work by what it was done for."""

    def __init__(self):
        self.head = FakeHead()
        self.inputs = SimpleNamespace(upload=lambda plan, shape: None)
        self.forwards = 0
        self.finished = []
        self.layers = False

    def warm_up(self):
        self.head.warm_up()

    def shows_layers(self, plan):
        return self.layers

    def forward(self, plan, shape):
        self.forwards += 1
        return plan, torch.empty(0)

    def finish(self, batch, hidden, variant):
        self.finished.append(variant)
        return StepResult(torch.zeros(4, dtype=torch.int64))


class FakeGraph:
    replayed = 0

    def replay(self):
        self.replayed += 1


@pytest.fixture
def rig(monkeypatch):
    """(runner, its step, the graphs captured so far)."""
    graphs = []

    @contextlib.contextmanager
    def capture(graph, pool):
        graphs.append(graph)
        yield

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr("octavo.worker.graphs._real_samples", lambda batch, plan: batch)
    step = FakeStep()
    platform = CpuPlatform(PlatformInfo("cpu", "test", 1 << 30, 1 << 30))
    return CudaGraphRunner(step, GraphSizes([2, 4], [4], [16], [4]), 64, platform), step, graphs


def decode(num_rows):
    return StepPlan.of(
        SchedulerOutput(
            step_id=0,
            slots=list(range(num_rows)),
            num_computed_tokens=[5] * num_rows,
            num_scheduled_tokens=[1] * num_rows,
            samples=[True] * num_rows,
            num_decode_rows=num_rows,
        )
    )


def test_a_graph_per_shape_and_variant(rig):
    runner, step, graphs = rig
    for _ in range(2):
        for variant in (Variant.GREEDY, Variant.RANDOM, Variant.EDITED):
            step.head.now = variant
            for num_rows in (1, 2, 3, 4):
                runner.run(decode(num_rows))
    assert [graph.replayed for graph in graphs] == [4] * 6
    # Each capture runs once before and once in it; a replay runs nothing on the host.
    assert step.forwards == len(step.finished) == 12
    assert len(step.head.accounted) == 24


def test_sampling_that_needs_the_host_comes_after_the_graph(rig):
    runner, step, graphs = rig
    step.head.now = Variant.HOST
    for _ in range(3):
        runner.run(decode(3))
    assert graphs[0].replayed == 3
    assert step.finished == [Variant.HOST] * 3
    assert step.head.accounted == [Variant.HOST] * 3


def test_a_step_that_shows_its_layers_runs_without_a_graph(rig):
    runner, step, graphs = rig
    step.layers = True
    runner.run(decode(3))
    assert graphs == []
    assert step.forwards == len(step.finished) == 1
    step.layers = False
    runner.run(decode(3))
    assert [graph.replayed for graph in graphs] == [1]


def test_a_graph_whose_tables_have_moved_is_captured_anew(rig):
    runner, step, graphs = rig
    step.head.now, step.head.tables = Variant.EDITED, "tables"
    runner.run(decode(4))
    runner.run(decode(4))
    step.head.tables = "other tables"
    runner.run(decode(4))
    runner.run(decode(4))
    assert [graph.replayed for graph in graphs] == [2, 2]
    step.head.now = Variant.RANDOM
    runner.run(decode(4))
    step.head.tables = "a third"
    runner.run(decode(4))
    assert [graph.replayed for graph in graphs] == [2, 2, 2]


def test_a_mixed_step_samples_after_its_graph(rig):
    runner, step, graphs = rig
    step.head.now = Variant.RANDOM
    plan = StepPlan.of(
        SchedulerOutput(
            step_id=0,
            slots=[0, 1],
            num_computed_tokens=[5, 0],
            num_scheduled_tokens=[1, 7],
            samples=[True, True],
            num_decode_rows=1,
        )
    )
    for _ in range(6):
        runner.run(plan)
    assert [graph.replayed for graph in graphs] == [3]
    assert step.finished == [Variant.RANDOM] * 6
    assert step.head.accounted == [Variant.RANDOM] * 6


def test_start_captures_greedy_graphs(rig):
    runner, step, graphs = rig
    runner.prepare()
    assert len(graphs) == 1
    assert step.finished == [Variant.GREEDY] * 2
    runner.run(decode(3))
    assert graphs[0].replayed == 1
