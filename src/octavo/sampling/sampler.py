"""Sampler: logits and slots in, one token per row out, in one documented order.

1. Raw logprobs are those of the logits as they come (`logprobs_mode` raw_*).
2. min_tokens bars stop and EOS tokens; allowed_token_ids bars all others; logit_bias is added;
   bad_words bars the token that would complete one.
3. LogitsProcessor plug-ins that are not argmax-invariant, in the order they were configured.
4. Repetition, then frequency, then presence penalty.
5. Greedy rows (temperature 0 or top_k 1) take the highest logit, the lowest id among equals.
6. The others: temperature; min_p; argmax-invariant plug-ins; top_k; top_p; exponential race.
7. Processed logprobs are those of the logits at the end (`logprobs_mode` processed_*).

Every stage works on all rows that use it at once, so the number of tensor calls does not depend
on the number of rows, and a stage without users is left out. Where the order differs from
vLLM's is told in docs/sampling.md.
"""

from __future__ import annotations

import torch
from torch import Tensor

from octavo.sampling.interface import SamplerOutput, SamplingRows
from octavo.sampling.logprob_tensors import LogprobTensors
from octavo.sampling.logprobs import gather_logprobs
from octavo.sampling.row_filters import RowSubset
from octavo.sampling.state import RowPlan, SamplingState


class Sampler:
    """Turns logits into tokens; it keeps nothing between calls."""

    def __call__(self, logits: Tensor, rows: SamplingRows, state: SamplingState) -> SamplerOutput:
        """Sample from logits[R, V] float32, which are written over; the device is not waited for.

        Two things wait all the same: a plug-in that reads tokens on the host, and, on a CPU,
        truncation that looks whether it has seen enough of the vocabulary.
        """
        plan = state.plan(rows)
        finite = state.kernels.finite_rows(logits)
        scored = [subset.take(logits) for subset, _ in plan.logprobs] if state.raw_logprobs else []
        if plan.changes_logits:
            scored = [rows_logits.clone() for rows_logits in scored]

        errors = dict(plan.row_errors)
        for editor, subset in plan.editors:
            editor.apply(logits, rows, subset)
        errors |= state.processors.apply(logits, rows, plan.processors, argmax_invariant=False)
        if plan.penalties is not None:
            state.penalties.apply(logits, rows, plan.penalties)
        token_ids = (
            state.kernels.greedy(logits)
            if plan.has_greedy
            else rows.slots.new_zeros(rows.slots.shape)
        )
        if plan.random is not None:
            errors |= _draw(logits, rows, state, plan, token_ids)
        finite &= state.kernels.finite_rows(logits)
        token_ids.masked_fill_(~finite, 0)

        if not state.raw_logprobs:
            scored = [subset.take(logits) for subset, _ in plan.logprobs]
        logprobs: list[LogprobTensors] = []
        for rows_logits, (subset, num_top) in zip(scored, plan.logprobs, strict=True):
            logprobs += gather_logprobs(
                state.kernels,
                rows_logits,
                subset.take(token_ids),
                subset.rows,
                num_top,
                normalize=state.normalize_logprobs,
            )
        return SamplerOutput(token_ids, ~finite, LogprobTensors.join(logprobs), errors)


def _draw(
    logits: Tensor, rows: SamplingRows, state: SamplingState, plan: RowPlan, token_ids: Tensor
) -> dict[int, str]:
    """Write the random rows' tokens into token_ids[R]; the texts of rows whose plug-in failed."""
    params, kernels = state.params, state.kernels
    # Greedy rows have temperature 1, which changes no bit of them.
    logits.div_(params.temperature.index_select(0, rows.slots)[:, None])
    if plan.min_p is not None:
        min_p = params.min_p.index_select(0, plan.min_p.table_rows)
        kernels.apply_min_p(logits, plan.min_p.index, min_p)
    errors = state.processors.apply(logits, rows, plan.processors, argmax_invariant=True)
    if plan.whole_softmax is not None:
        drawn = kernels.sample(
            logits, plan.whole_softmax.index, _keys(rows, state, plan.whole_softmax)
        )
        _put(token_ids, plan.whole_softmax, drawn)
    if plan.truncated is not None:
        index, slots = plan.truncated.index, plan.truncated.table_rows
        top_k = params.top_k.index_select(0, slots).to(torch.int64)
        top_p = params.top_p.index_select(0, slots)
        keys = _keys(rows, state, plan.truncated)
        if plan.logprobs and not state.raw_logprobs:
            # The survivors' logits are wanted whole, not only the token drawn from them.
            kernels.truncate(logits, index, top_k, top_p, plan.num_candidates)
            drawn = kernels.sample(logits, index, keys)
        else:
            drawn = kernels.sample_truncated(logits, index, top_k, top_p, keys, plan.num_candidates)
        _put(token_ids, plan.truncated, drawn)
    return errors


def _keys(rows: SamplingRows, state: SamplingState, subset: RowSubset) -> tuple[Tensor, Tensor]:
    return state.kernels.row_keys(
        state.params.seed_low.index_select(0, subset.table_rows),
        state.params.seed_high.index_select(0, subset.table_rows),
        subset.take(rows.positions).to(torch.int32),
    )


def _put(token_ids: Tensor, subset: RowSubset, drawn: Tensor) -> None:
    if subset.index is None:
        token_ids.copy_(drawn)
    else:
        token_ids.index_copy_(0, subset.index, drawn)
