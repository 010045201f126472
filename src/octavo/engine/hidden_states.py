"""HiddenStatesCollector: a request's hidden states, put together from what steps tell of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.types.engine_output import HiddenStatesChunk
from octavo.types.outputs import HiddenStates
from octavo.types.sampling_extras import HiddenStatesParams


class HiddenStatesCollector:
    """Chunks come in order of position, but a request that was preempted tells some twice."""

    def __init__(self, params: HiddenStatesParams) -> None:
        self._layers = params.layers
        self._first: int | None = None
        self._next = 0  # the position after the last one known
        self._parts: list[npt.NDArray[np.float32]] = []

    def add(self, chunk: HiddenStatesChunk) -> None:
        """Take the positions of a step that are news."""
        states = chunk.states.array()
        end = chunk.first_position + states.shape[1]
        if self._first is None:
            self._first = self._next = chunk.first_position
        known = self._next - chunk.first_position
        if end > self._next:
            self._parts.append(states[:, known:])
            self._next = end

    def result(self, num_tokens: int) -> HiddenStates | None:
        """What is known of the first `num_tokens` of prompt and output; None for nothing."""
        if self._first is None:
            return None
        states = np.concatenate(self._parts, axis=1)[:, : max(num_tokens - self._first, 0)]
        return HiddenStates(list(self._layers), self._first, states)
