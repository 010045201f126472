"""The places a feature can take in a step, as protocols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from octavo.attention.interface import AttentionContext
from octavo.sampling.interface import Variant
from octavo.sampling.token_masks import TokenMasks
from octavo.types.scheduler_output import GrammarMasks, NewRequestData
from octavo.utils.profiling import HostSpans
from octavo.worker.input_batch import InputBatch, LaunchedStep
from octavo.worker.output import AsyncOutput, LateOutput
from octavo.worker.step import HiddenRow, StepPlan, StepResult


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


class StepAttention(Protocol):
    """What a step's attention layers read: AttentionGroups, or EncoderRows."""

    def warm_up(self) -> None:
        """Prepare what steps must not wait for."""
        ...

    def context(self, batch: InputBatch) -> AttentionContext:
        """The context of a step."""
        ...


class LayerTap(Protocol):
    """Hidden states between the layers, for requests that ask for them."""

    def layers(self, plan: StepPlan) -> list[int]:
        """The layers that rows of the step want to see; none where none wants any."""
        ...

    def forward(
        self, batch: InputBatch, context: AttentionContext, layers: list[int]
    ) -> torch.Tensor:
        """The forward pass of a step with such rows: hidden states [T, H]; the rest is kept."""
        ...

    def give(self) -> list[HiddenRow]:
        """What was kept of the step."""
        ...


class Runner(Protocol):
    """What a worker drives; GPUModelRunner is the one there is."""

    def execute_model(self, plan: StepPlan) -> AsyncOutput | LateOutput:
        """Queue one step and return at once; one with grammar rows waits for `sample_tokens`."""
        ...

    def sample_tokens(self, masks: GrammarMasks) -> None:
        """Queue the rest of the step that waits."""
        ...

    def prepare(self) -> None:
        """Warm up and capture graphs; once, in the thread that runs the steps."""
        ...

    def release(self, slots: Sequence[int]) -> None:
        """Forget the requests of slots whose steps were only made up."""
        ...

    def watch(self, spans: HostSpans) -> None:
        """Have the host's parts of every step recorded."""
        ...


class Head(Protocol):
    """What is made of hidden states."""

    def __call__(
        self,
        hidden: torch.Tensor,
        batch: InputBatch,
        variant: Variant,
        masks: TokenMasks | None = None,
    ) -> StepResult:
        """hidden[T, H] -> the step's results, on the device.

        Unless the variant is HOST it reads nothing from the host, so a graph may hold it; then
        there are no masks.
        """
        ...

    def read(self, batch: InputBatch) -> torch.Tensor | None:
        """The tokens whose hidden states this will read, [S] int64 ascending; None: all."""
        ...

    def variant(self, plan: StepPlan) -> Variant:
        """How far the step's sampling goes."""
        ...

    def binding(self, variant: Variant) -> object:
        """What a graph of the variant is tied to: with another object it must be captured anew."""
        ...

    def account(self, plan: StepPlan, variant: Variant) -> None:
        """The host's part of a step that was launched or replayed."""
        ...

    def warm_up(self) -> None:
        """Compile what steps must not wait for."""
        ...


class GraphRunner(Protocol):
    """How the device's part of a step is run: eagerly or as a captured graph."""

    def run(self, plan: StepPlan) -> StepResult:
        """Queue the step whose slots are up to date."""
        ...

    def launch(self, plan: StepPlan) -> LaunchedStep:
        """Queue its forward pass only; `finish` must follow before anything else is run."""
        ...

    def finish(self, launched: LaunchedStep, masks: TokenMasks | None) -> StepResult:
        """Queue the rest of a step that was launched."""
        ...

    def prepare(self) -> None:
        """Do what can be done before the first request, in the thread that runs the steps."""
        ...

    def watch(self, spans: HostSpans) -> None:
        """Have the host's parts of every step recorded."""
        ...
