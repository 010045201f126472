"""Sampler: logits and slots in, one token per row out, in one documented order.

1. Raw logprobs are those of the logits as they come (`logprobs_mode` raw_*).
2. min_tokens bars stop and EOS tokens; allowed_token_ids bars all others; logit_bias is added;
   bad_words bars the token that would complete one.
3. LogitsProcessor plug-ins that are not argmax-invariant, in the order they were configured.
4. Repetition, then frequency, then presence penalty; DRY; the end of thinking, where it is due.
5. Greedy rows (temperature 0 or top_k 1) take the highest logit, the lowest id among equals.
6. The others: top-n-sigma; temperature, dynamic or not; min_p; argmax-invariant plug-ins; top_k;
   top_p; typical_p; XTC; mirostat; exponential race.
7. Processed logprobs are those of the logits at the end (`logprobs_mode` processed_*).

Steps whose rows need neither plug-ins nor the host go to `SamplingKernels.draw`, which does it all
in a pass or two where the device has such a kernel. The others go stage by stage: every stage works
on all rows that use it at once, so the number of tensor calls does not depend on the number of
rows, and a stage without users is left out. Where the order differs from vLLM's is told in
docs/sampling.md.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from octavo.kernels.slot_tables import Kind, Word
from octavo.sampling.interface import RowValues, SamplerOutput, SamplingRows, Variant
from octavo.sampling.logprob_tensors import LogprobTensors
from octavo.sampling.logprobs import gather_logprobs
from octavo.sampling.row_filters import RowSubset
from octavo.sampling.row_plan import RowPlan
from octavo.sampling.state import SamplingState
from octavo.sampling.token_masks import TokenMasks


class Sampler:
    """Turns logits into tokens; it keeps nothing between calls."""

    def __call__(
        self,
        logits: Tensor,
        rows: SamplingRows,
        state: SamplingState,
        masks: TokenMasks | None = None,
    ) -> SamplerOutput:
        """Sample from logits[R, V], which may be written over; the device is not waited for.

        `masks` bar tokens before everything else; raw logprobs are of the logits without them.
        Two things wait all the same: a plug-in that reads tokens on the host, and, on a CPU,
        truncation that looks whether it has seen enough of the vocabulary.
        """
        plan = state.plan(rows)
        raw = logits
        if masks is not None:
            if plan.logprobs and state.raw_logprobs:
                logits = raw.clone()
            masks.apply(logits, state.kernels)
        if plan.variant is Variant.HOST:
            return _stage_by_stage(logits, raw, rows, state, plan)
        token_ids, nan_rows = draw(logits, rows.slots, rows.positions, state, plan.variant)
        logprobs = _logprobs(state, plan, raw, token_ids)
        return SamplerOutput(token_ids, nan_rows, logprobs, row_errors=dict(plan.row_errors))


def draw(
    logits: Tensor, slots: Tensor, positions: Tensor, state: SamplingState, variant: Variant
) -> tuple[Tensor, Tensor]:
    """(tokens [R] int64, nan_rows [R] bool) of logits[R, V], by kernels that a graph can hold.

    slots[R] and positions[R], int32 or int64, are those of SamplingRows; `variant` is not HOST.
    """
    if variant is Variant.GREEDY:
        return state.kernels.greedy_checked(logits)
    edits = variant is Variant.EDITED
    # One dtype, for a kernel is compiled for each.
    positions = positions.to(torch.int32)
    return state.kernels.draw(logits, slots, positions, state.tables, edits=edits)


def _stage_by_stage(
    given: Tensor, raw: Tensor, rows: SamplingRows, state: SamplingState, plan: RowPlan
) -> SamplerOutput:
    """From the logits `given`, which are `raw` but for what masks have barred."""
    logits = given.float()
    if logits is raw and plan.logprobs and state.raw_logprobs:
        logits = raw.clone()
    finite = state.kernels.finite_rows(logits)
    errors = dict(plan.row_errors)
    for editor, subset in plan.editors:
        editor.apply(logits, rows, subset)
    errors |= state.processors.apply(logits, rows, plan.processors, argmax_invariant=False)
    if plan.penalties is not None:
        state.penalties.apply(logits, rows, plan.penalties)
    for editor, subset in plan.late_editors:
        editor.apply(logits, rows, subset)
    token_ids = (
        state.kernels.greedy(logits) if plan.has_greedy else rows.slots.new_zeros(rows.slots.shape)
    )
    if plan.random is not None:
        errors |= _draw_by_subset(logits, rows, state, plan, token_ids)
    finite &= state.kernels.finite_rows(logits)
    token_ids.masked_fill_(~finite, 0)
    scored = raw if state.raw_logprobs else logits
    return SamplerOutput(
        token_ids,
        ~finite,
        _logprobs(state, plan, scored, token_ids),
        [RowValues(on.rows, stage.observe(logits, on, token_ids)) for stage, on in plan.mirostat],
        errors,
    )


def _logprobs(
    state: SamplingState, plan: RowPlan, logits: Tensor, token_ids: Tensor
) -> LogprobTensors | None:
    parts: list[LogprobTensors] = []
    for subset, num_top in plan.logprobs:
        parts += gather_logprobs(
            state.kernels,
            logits,
            token_ids,
            subset,
            num_top,
            normalize=state.normalize_logprobs,
        )
    return LogprobTensors.join(parts)


def _draw_by_subset(
    logits: Tensor, rows: SamplingRows, state: SamplingState, plan: RowPlan, token_ids: Tensor
) -> dict[int, str]:
    """Write the random rows' tokens into token_ids[R]; the texts of rows whose plug-in failed."""
    params, kernels = state.params, state.kernels
    for scaler, subset in plan.scalers:
        scaler.apply(logits, rows, subset)
    # Greedy rows have temperature 1, which changes no bit of them.
    logits.div_(params.temperature.index_select(0, rows.slots)[:, None])
    if plan.min_p is not None:
        log_min_p = params.log_min_p.index_select(0, plan.min_p.table_rows)
        kernels.apply_min_p(logits, plan.min_p.index, log_min_p)
    errors = state.processors.apply(logits, rows, plan.processors, argmax_invariant=True)
    # The survivors' logits may be wanted whole, not only the token drawn from them.
    wanted = bool(plan.shapers) or (bool(plan.logprobs) and not state.raw_logprobs)
    masks = plan.truncated is not None and wanted
    if plan.truncated is not None:
        index, slots = plan.truncated.index, plan.truncated.table_rows
        top_k = params.top_k.index_select(0, slots).to(torch.int64)
        top_p = params.top_p.index_select(0, slots)
        if masks:
            kernels.truncate(logits, index, top_k, top_p, plan.num_candidates)
    for shaper, subset in plan.shapers:
        shaper.apply(logits, rows, subset)
    if kernels.PREFERS_DRAW:
        token_ids.copy_(_draw_rest(logits, rows, state, truncated=masks))
        return errors
    if plan.whole_softmax is not None:
        drawn = kernels.sample(
            logits, plan.whole_softmax.index, _keys(rows, state, plan.whole_softmax)
        )
        _put(token_ids, plan.whole_softmax, drawn)
    if plan.truncated is not None:
        keys = _keys(rows, state, plan.truncated)
        if masks:
            drawn = kernels.sample(logits, index, keys)
        else:
            drawn = kernels.sample_truncated(logits, index, top_k, top_p, keys, plan.num_candidates)
        _put(token_ids, plan.truncated, drawn)
    return errors


def _draw_rest(
    logits: Tensor, rows: SamplingRows, state: SamplingState, *, truncated: bool
) -> Tensor:
    """[R] int64: `SamplingKernels.draw` where temperature and min-p, maybe all, are done."""
    words = state.params.table.index_select(0, rows.slots)
    floats = words.view(torch.float32)
    floats[:, Word.TEMPERATURE] = 1.0
    floats[:, Word.LOG_MIN_P] = -torch.inf
    if truncated:
        words[:, Word.KIND].clamp_(max=Kind.WHOLE)
    tables = replace(state.tables, params=words)
    each = torch.arange(logits.shape[0], device=logits.device)
    positions = rows.positions.to(torch.int32)
    return state.kernels.draw(logits, each, positions, tables, edits=False)[0]


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
