"""GenerationHead: hidden states to logits to the next token of every row that has come that far."""

from __future__ import annotations

import torch

from octavo.models.interfaces import CausalLM
from octavo.sampling.interface import SamplingRows, Variant
from octavo.sampling.sampler import Sampler, draw
from octavo.sampling.state import SamplingState
from octavo.sampling.token_masks import TokenMasks
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
        hidden: torch.Tensor,
    ) -> None:
        """`hidden` [1, H] is what to warm up with."""
        self._model = model
        self._sampler = sampler
        self._state = state
        self._prompt_logprobs = prompt_logprobs
        self._hidden = hidden

    def warm_up(self) -> None:
        """See Head."""
        self._state.warm_up(self._model.compute_logits(self._hidden))

    def read(self, batch: InputBatch) -> torch.Tensor | None:
        """See Head."""
        all_tokens = batch.all_sample or self._prompt_logprobs.rows(batch.plan)
        return None if all_tokens else batch.logits_index

    def variant(self, plan: StepPlan) -> Variant:
        """See Head."""
        return self._state.variant(sampled_slots(plan))

    def binding(self, variant: Variant) -> object:
        """See Head."""
        return self._state.tables if variant is Variant.EDITED else None

    def account(self, plan: StepPlan, variant: Variant) -> None:
        """See Head."""
        if variant is not Variant.HOST:
            self._state.advance(sampled_slots(plan))

    def __call__(
        self,
        hidden: torch.Tensor,
        batch: InputBatch,
        variant: Variant,
        masks: TokenMasks | None = None,
    ) -> StepResult:
        """See Head."""
        prompt_logprobs = self._prompt_logprobs.compute(hidden, batch)
        if batch.logits_index.shape[0] == 0:
            no_tokens = batch.logits_index.new_empty(0)
            return StepResult(no_tokens, prompt_logprobs=prompt_logprobs)
        last = hidden if batch.all_sample else hidden[batch.logits_index]
        logits = self._model.compute_logits(last)
        slots, positions = batch.slots, batch.seq_lens
        if not batch.all_sample:
            slots, positions = slots[batch.sample_index], positions[batch.sample_index]
        if variant is not Variant.HOST:
            token_ids, nan_rows = draw(logits, slots, positions, self._state, variant)
            if variant is Variant.EDITED:
                self._state.count_outputs(slots, token_ids)
            return StepResult(token_ids, nan_rows, prompt_logprobs=prompt_logprobs)
        rows = SamplingRows(slots, positions.long(), sampled_slots(batch.plan))
        out = self._sampler(logits, rows, self._state, masks)
        self._state.commit(rows, out.token_ids)
        sample_rows = batch.plan.sample_rows
        return StepResult(
            token_ids=out.token_ids,
            nan_rows=out.nan_rows,
            logprobs=out.logprobs,
            prompt_logprobs=prompt_logprobs,
            row_errors={sample_rows[index]: text for index, text in out.row_errors.items()},
            mirostat_mu=out.mirostat_mu,
        )


def sampled_slots(plan: StepPlan) -> list[int]:
    """The slots of the rows followed by sampling, in order."""
    slots = plan.work.slots
    if len(plan.sample_rows) == len(slots):
        return slots
    return [slots[row] for row in plan.sample_rows]
