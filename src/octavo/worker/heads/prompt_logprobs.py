"""PromptLogprobs: logprobs of prompt tokens, chunk by chunk as a prompt is computed."""

from __future__ import annotations

from collections.abc import Callable

import torch

from octavo.sampling.interface import SamplingKernels
from octavo.sampling.logprob_tensors import LogprobTensors
from octavo.sampling.logprobs import prompt_logprobs
from octavo.types.scheduler_output import NewRequestData
from octavo.worker.input_batch import InputBatch
from octavo.worker.step import StepPlan


class PromptLogprobs:
    """The slots whose requests want them; a step without such rows costs nothing."""

    def __init__(
        self,
        kernels: SamplingKernels,
        compute_logits: Callable[[torch.Tensor], torch.Tensor],  # [N, H] -> [N, V] float32
    ) -> None:
        self._kernels = kernels
        self._compute_logits = compute_logits
        self._wanted: dict[int, NewRequestData] = {}

    def add(self, slot: int, new: NewRequestData) -> None:
        """See SlotState."""
        if new.sampling_params.prompt_logprobs is not None:
            self._wanted[slot] = new

    def remove(self, slot: int) -> None:
        """See SlotState."""
        self._wanted.pop(slot, None)

    def flush(self) -> None:
        """Nothing is kept on the device."""

    def rows(self, plan: StepPlan) -> list[int]:
        """Rows of the step that compute prompt tokens of such requests."""
        if not self._wanted:
            return []
        work = plan.work
        return [
            row
            for row in range(work.num_decode_rows, plan.num_rows)
            if (new := self._wanted.get(work.slots[row])) is not None
            and work.num_computed_tokens[row] + 1 < new.num_prompt_tokens
        ]

    def compute(self, hidden: torch.Tensor, batch: InputBatch) -> dict[int, LogprobTensors]:
        """Row -> logprobs of the prompt tokens that its hidden states predict; hidden[T, H]."""
        plan = batch.plan
        result: dict[int, LogprobTensors] = {}
        for row in self.rows(plan):
            new = self._wanted[plan.work.slots[row]]
            first = plan.work.num_computed_tokens[row]
            start = int(plan.query_start_loc[row])
            # The hidden state at position p predicts the token at p + 1.
            count = min(plan.work.num_scheduled_tokens[row], new.num_prompt_tokens - 1 - first)
            targets = torch.tensor(
                new.token_ids[first + 1 : first + 1 + count], device=hidden.device
            )
            wanted = new.sampling_params.prompt_logprobs
            tensors = prompt_logprobs(
                self._kernels,
                hidden[start : start + count],
                targets,
                0 if wanted is None else wanted,
                self._compute_logits,
            )
            if tensors is not None:
                result[row] = tensors
        return result
