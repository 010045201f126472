"""HiddenStatesTap: hidden states of the layers and positions that requests ask for."""

from __future__ import annotations

from typing import NamedTuple

import torch

from octavo.attention.interface import AttentionContext
from octavo.models.interfaces import CausalLM
from octavo.types.sampling_extras import HiddenStatesParams
from octavo.types.scheduler_output import NewRequestData
from octavo.worker.input_batch import InputBatch
from octavo.worker.step import HiddenRow, StepPlan


class _Wanted(NamedTuple):
    layers: tuple[int, ...]  # counted from 0
    positions: str
    num_prompt_tokens: int


class NoHiddenStates:
    """Of models that have no tap; see LayerTap."""

    def layers(self, plan: StepPlan) -> list[int]:
        """None."""
        return []

    def forward(
        self, batch: InputBatch, context: AttentionContext, layers: list[int]
    ) -> torch.Tensor:
        """Never called, for no layers are wanted."""
        raise AssertionError("no layers are wanted")

    def give(self) -> list[HiddenRow]:
        """Nothing."""
        return []


class HiddenStatesTap:
    """The slots whose requests want hidden states; a step without such rows costs nothing.

    One with such rows runs eagerly, its layers one by one, for graphs and compiled models keep
    nothing of what is between their layers.
    """

    def __init__(self, model: CausalLM, num_layers: int) -> None:
        self._model = model
        self._num_states = num_layers + 1
        self._wanted: dict[int, _Wanted] = {}
        self._taken: list[HiddenRow] = []

    def add(self, slot: int, new: NewRequestData) -> None:
        """See SlotState."""
        params: HiddenStatesParams | None = new.sampling_params.hidden_states
        if params is not None:
            layers = tuple(layer % self._num_states for layer in params.layers)
            self._wanted[slot] = _Wanted(layers, params.positions, new.num_prompt_tokens)

    def remove(self, slot: int) -> None:
        """See SlotState."""
        self._wanted.pop(slot, None)

    def flush(self) -> None:
        """Nothing is kept on the device."""

    def layers(self, plan: StepPlan) -> list[int]:
        """The layers that rows of the step want to see; none where none wants any."""
        if not self._wanted:
            return []
        slots = plan.work.slots
        wanted = {
            layer
            for row, slot in enumerate(slots)
            if slot in self._wanted and len(self._positions(plan, row))
            for layer in self._wanted[slot].layers
        }
        return sorted(wanted)

    def forward(
        self, batch: InputBatch, context: AttentionContext, layers: list[int]
    ) -> torch.Tensor:
        """The model's hidden states [T, H]; what rows want of the layers is kept until `give`."""
        hidden, states = self._model.forward_with_states(
            batch.input_ids, batch.positions, context, layers
        )
        self._take(batch.plan, states)
        return hidden

    def give(self) -> list[HiddenRow]:
        """What was kept of the step."""
        taken, self._taken = self._taken, []
        return taken

    def _take(self, plan: StepPlan, states: dict[int, torch.Tensor]) -> None:
        for row, slot in enumerate(plan.work.slots):
            if slot not in self._wanted:
                continue
            positions = self._positions(plan, row)
            if not positions:
                continue
            first = int(plan.query_start_loc[row]) - plan.work.num_computed_tokens[row]
            tokens = slice(first + positions.start, first + positions.stop)
            layers = self._wanted[slot].layers
            values = torch.stack([states[layer][tokens].float() for layer in layers])
            self._taken.append(HiddenRow(row, positions.start, values))

    def _positions(self, plan: StepPlan, row: int) -> range:
        """The positions of the row's tokens whose states its request wants."""
        wanted = self._wanted[plan.work.slots[row]]
        start = plan.work.num_computed_tokens[row]
        stop = start + plan.work.num_scheduled_tokens[row]
        end = wanted.num_prompt_tokens
        match wanted.positions:
            case "prompt":
                return range(start, min(stop, end))
            case "last":
                return range(max(start, end - 1), min(stop, end))
            case "output":
                return range(max(start, end), stop)
        return range(start, stop)
