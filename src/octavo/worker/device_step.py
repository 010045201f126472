"""DeviceStep: what the device does in a step, from the uploaded rows to committed tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from octavo.models.interfaces import Model
from octavo.sampling.interface import Variant
from octavo.sampling.token_masks import TokenMasks
from octavo.utils.profiling import HostSpans
from octavo.worker.input_batch import InputBatch
from octavo.worker.input_builder import InputBuilder
from octavo.worker.parts import Head, LayerTap, StepAttention, StepHook
from octavo.worker.step import StepPlan, StepResult, StepShape


class DeviceStep:
    """The same two calls whether they run eagerly or while a graph is being captured."""

    def __init__(
        self,
        inputs: InputBuilder,
        attention: StepAttention,
        model: Model,
        head: Head,
        hooks: Sequence[StepHook],
        states: LayerTap,
    ) -> None:
        self.inputs = inputs
        self.head = head
        self._attention = attention
        self._model = model
        self._hooks = hooks
        self._states = states

    def warm_up(self) -> None:
        """Prepare what steps must not wait for; in the thread that runs them."""
        self._attention.warm_up()
        self.head.warm_up()

    def watch(self, spans: HostSpans) -> None:
        """Have the host's time in each part recorded."""
        spans.watch(self.inputs, "upload", "build inputs")
        spans.watch(self, "forward", "forward")
        spans.watch(self, "finish", "sample")

    def shows_layers(self, plan: StepPlan) -> bool:
        """Whether the step must be run layer by layer, and so not from a graph."""
        return bool(self._states.layers(plan))

    def forward(self, plan: StepPlan, shape: StepShape) -> tuple[InputBatch, torch.Tensor]:
        """The step's tensors, padded to `shape`, and hidden states [T, H]."""
        batch = self.inputs.tensors(plan, shape)
        context = replace(self._attention.context(batch), read=self.head.read(batch))
        for hook in self._hooks:
            hook.before_forward(batch)
        layers = self._states.layers(plan)
        if layers:
            hidden = self._states.forward(batch, context, layers)
        else:
            hidden = self._model.forward(batch.input_ids, batch.positions, context)
        for hook in self._hooks:
            hook.after_forward(batch)
        return batch, hidden

    def finish(
        self,
        batch: InputBatch,
        hidden: torch.Tensor,
        variant: Variant,
        masks: TokenMasks | None = None,
    ) -> StepResult:
        """Results of the step; the slots advance to where the next step finds them."""
        result = self.head(hidden, batch, variant, masks)
        self.inputs.commit(batch, result.token_ids)
        result.hidden_states = self._states.give()
        return result
