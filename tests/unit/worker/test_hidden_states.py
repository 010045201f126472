"""HiddenStatesTap: which positions of a step's rows are wanted, of which layers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from octavo.types.sampling_extras import HiddenStatesParams
from octavo.types.sampling_params import SamplingParams
from octavo.types.scheduler_output import NewRequestData, SchedulerOutput
from octavo.worker.hidden_states import HiddenStatesTap
from octavo.worker.step import StepPlan

LAYERS, SIZE = 3, 4


class _Model:
    def forward_with_states(
        self, input_ids: torch.Tensor, positions: torch.Tensor, attn: Any, layers: list[int]
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        states = {
            layer: (positions[:, None] + 10 * layer).expand(-1, SIZE).to(torch.bfloat16)
            for layer in layers
        }
        return torch.zeros(len(positions), SIZE), states


def _tap(*slots: tuple[int, HiddenStatesParams | None]) -> HiddenStatesTap:
    tap = HiddenStatesTap(_Model(), LAYERS)
    for slot, params in slots:
        sampling = SamplingParams(hidden_states=params)
        tap.add(slot, NewRequestData(slot, str(slot), [0] * 6, 6, 0, [], sampling, 0))
    return tap


def _plan(slots: list[int], computed: list[int], scheduled: list[int]) -> StepPlan:
    return StepPlan.of(
        SchedulerOutput(
            step_id=0,
            slots=slots,
            num_computed_tokens=computed,
            num_scheduled_tokens=scheduled,
            samples=[True] * len(slots),
        )
    )


def _run(tap: HiddenStatesTap, plan: StepPlan) -> dict[int, tuple[int, list[list[float]]]]:
    """Row -> (first position, states by layer and position, of which all elements are equal)."""
    work = plan.work
    positions = [
        position
        for start, count in zip(work.num_computed_tokens, work.num_scheduled_tokens, strict=True)
        for position in range(start, start + count)
    ]
    batch: Any = SimpleNamespace(plan=plan, input_ids=None, positions=torch.tensor(positions))
    tap.forward(batch, None, tap.layers(plan))
    found = {}
    for row, first, states in tap.give():
        assert states.dtype == torch.float32
        found[row] = first, states[:, :, 0].tolist()
    assert tap.give() == []
    return found


@pytest.mark.parametrize(
    ("positions", "start", "count", "expected"),
    [
        ("last", 0, 4, None),
        ("last", 4, 2, [5]),
        ("last", 6, 1, None),
        ("prompt", 2, 4, [2, 3, 4, 5]),
        ("prompt", 6, 1, None),
        ("output", 0, 6, None),
        ("output", 0, 8, [6, 7]),  # computed again after a preemption
        ("output", 7, 1, [7]),
        ("all", 3, 5, [3, 4, 5, 6, 7]),
    ],
)
def test_the_positions_of_each_kind(
    positions: str, start: int, count: int, expected: list[int] | None
) -> None:
    tap = _tap((5, HiddenStatesParams(positions=positions, layers=[1])))
    plan = _plan([5], [start], [count])
    if expected is None:
        assert tap.layers(plan) == []
        return
    assert tap.layers(plan) == [1]
    assert _run(tap, plan) == {0: (expected[0], [[10 + p for p in expected]])}


def test_rows_want_layers_of_their_own() -> None:
    tap = _tap(
        (1, HiddenStatesParams(layers=[-1, 0], positions="all")),
        (2, None),
        (3, HiddenStatesParams(layers=[-2], positions="all")),
    )
    plan = _plan([2, 3, 1], [0, 4, 1], [2, 1, 2])
    assert tap.layers(plan) == [0, 2, 3]
    assert _run(tap, plan) == {
        1: (4, [[24.0]]),
        2: (1, [[31.0, 32.0], [1.0, 2.0]]),
    }


def test_a_request_that_left_wants_nothing() -> None:
    tap = _tap((1, HiddenStatesParams(positions="all")))
    tap.remove(1)
    assert tap.layers(_plan([1], [0], [3])) == []
