"""GenerationHead: hidden states to logits to the next token of every row that has come that far."""

from __future__ import annotations

import torch

from octavo.models.interfaces import CausalLM
from octavo.sampling.interface import SamplingRows
from octavo.sampling.sampler import Sampler
from octavo.sampling.state import SamplingState
from octavo.worker.heads.prompt_logprobs import PromptLogprobs
from octavo.worker.input_batch import InputBatch
from octavo.worker.step import StepPlan, StepResult


class GenerationHead:
    """Logits are computed only where a token is sampled or a prompt logprob was asked for."""

    def __init__(
        self,
        model: CausalLM,
        sampler: Sampler,
        state: SamplingState,
        prompt_logprobs: PromptLogprobs,
    ) -> None:
        self._model = model
        self._sampler = sampler
        self._state = state
        self._prompt_logprobs = prompt_logprobs

    def device_only(self, plan: StepPlan) -> bool:
        """See Head: true when every row takes the likeliest token."""
        return self._state.all_greedy(sampled_slots(plan))

    def __call__(self, hidden: torch.Tensor, batch: InputBatch) -> StepResult:
        """See Head."""
        prompt_logprobs = self._prompt_logprobs.compute(hidden, batch)
        if batch.logits_index.shape[0] == 0:
            no_tokens = batch.logits_index.new_empty(0)
            return StepResult(no_tokens, prompt_logprobs=prompt_logprobs)
        last = hidden if batch.all_sample else hidden[batch.logits_index]
        logits = self._model.compute_logits(last)
        slots = sampled_slots(batch.plan)
        if self._state.all_greedy(slots):
            token_ids, nan_rows = self._state.kernels.greedy_checked(logits)
            return StepResult(token_ids, nan_rows, prompt_logprobs=prompt_logprobs)
        rows = SamplingRows(
            slots=batch.slots[batch.sample_index],
            positions=batch.seq_lens[batch.sample_index].long(),
            slots_cpu=slots,
        )
        out = self._sampler(logits.float(), rows, self._state)
        self._state.commit(rows, out.token_ids)
        sample_rows = batch.plan.sample_rows
        return StepResult(
            token_ids=out.token_ids,
            nan_rows=out.nan_rows,
            logprobs=out.logprobs,
            prompt_logprobs=prompt_logprobs,
            row_errors={sample_rows[index]: text for index, text in out.row_errors.items()},
        )


def sampled_slots(plan: StepPlan) -> list[int]:
    """The slots of the rows followed by sampling, in order."""
    slots = plan.work.slots
    return [slots[row] for row in plan.sample_rows]
