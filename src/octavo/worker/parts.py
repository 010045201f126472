"""The places a feature can take in a step, as protocols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from octavo.types.scheduler_output import NewRequestData
from octavo.worker.input_batch import InputBatch
from octavo.worker.output import AsyncOutput
from octavo.worker.step import StepPlan, StepResult


class SlotState(Protocol):
    """Device state per request, in fixed slots; changes are staged and flushed once a step."""

    def add(self, slot: int, new: NewRequestData) -> None:
        """A request takes the slot."""
        ...

    def remove(self, slot: int) -> None:
        """The request of the slot is gone."""
        ...

    def flush(self) -> None:
        """Bring staged changes to the device."""
        ...


class StepHook(Protocol):
    """A side effect around the forward pass; it may change neither the batch nor the tokens."""

    def before_forward(self, batch: InputBatch) -> None:
        """Called when the inputs are built."""
        ...

    def after_forward(self, batch: InputBatch) -> None:
        """Called when the forward pass has been queued."""
        ...


class Runner(Protocol):
    """What a worker drives; GPUModelRunner is the one there is."""

    def execute_model(self, plan: StepPlan) -> AsyncOutput:
        """Queue one step and return at once."""
        ...

    def prepare(self) -> None:
        """Warm up and capture graphs; once, in the thread that runs the steps."""
        ...

    def release(self, slots: Sequence[int]) -> None:
        """Forget the requests of slots whose steps were only made up."""
        ...


class Head(Protocol):
    """What is made of hidden states."""

    def __call__(self, hidden: torch.Tensor, batch: InputBatch) -> StepResult:
        """hidden[T, H] -> the step's results, on the device."""
        ...

    def device_only(self, plan: StepPlan) -> bool:
        """Whether the head reads nothing from the host for this step, so a graph may hold it."""
        ...


class GraphRunner(Protocol):
    """How the device's part of a step is run: eagerly or as a captured graph."""

    def run(self, plan: StepPlan) -> StepResult:
        """Queue the step whose slots are up to date."""
        ...

    def prepare(self) -> None:
        """Do what can be done before the first request, in the thread that runs the steps."""
        ...
