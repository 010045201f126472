"""SamplingState: every request's sampling parameters and history, held on the device by slot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from octavo.kernels.reference import sampling as reference
from octavo.kernels.slot_tables import Feature, SlotTables
from octavo.sampling.bad_words import BadWords
from octavo.sampling.dry import Dry
from octavo.sampling.feature_rows import FeatureRows
from octavo.sampling.history import TokenHistory
from octavo.sampling.interface import (
    LogitsEditor,
    SamplingKernels,
    SamplingRows,
    SlotState,
    TokenFollower,
    Variant,
)
from octavo.sampling.logit_bias import AllowedTokens, LogitBias, MinTokens
from octavo.sampling.mirostat import Mirostat
from octavo.sampling.penalties import Penalties
from octavo.sampling.processor_set import ProcessorSet
from octavo.sampling.processors import LogitsProcessor
from octavo.sampling.row_filters import RowSubset, filter_rows
from octavo.sampling.row_plan import RowPlan
from octavo.sampling.shapers import DynamicTemperature, ExcludeTopChoices, TopNSigma, TypicalP
from octavo.sampling.slot_params import SlotParams
from octavo.sampling.staging import Staging
from octavo.sampling.thinking import ThinkingBudget
from octavo.types.scheduler_output import NewRequestData

_Stage = TypeVar("_Stage", bound=LogitsEditor)


class SamplingState:
    """The SlotStates of sampling, in order, and the plan of rows made from them.

    Per step the worker calls remove and add for the slots that change, flush, the sampler, and
    commit. None of them waits for the device. What the tokens of earlier steps decide (counts,
    suffixes, positions) is kept on the device and moved on by commit, so a step can be launched
    before the host knows the tokens of the one before it.
    """

    def __init__(
        self,
        num_slots: int,
        vocab_size: int,
        device: torch.device,
        *,
        max_model_len: int,
        kernels: SamplingKernels = reference,
        logits_processors: Iterable[type[LogitsProcessor]] = (),
        logprobs_mode: str = "raw_logprobs",
    ) -> None:
        """`logprobs_mode`: raw_logprobs, raw_logits, processed_logprobs or processed_logits."""
        self.device = device
        self.kernels = kernels
        self.raw_logprobs = logprobs_mode.startswith("raw_")
        self.normalize_logprobs = logprobs_mode.endswith("_logprobs")
        self._staging = Staging(device, num_slots - 1 if kernels.PREFERS_DRAW else 0)
        shared = (self._staging, kernels)
        self.params = SlotParams(num_slots, vocab_size, self._staging)
        self.history = TokenHistory(max_model_len, self._staging)
        self.min_tokens = MinTokens(vocab_size, self.params, *shared)
        self.bad_words = BadWords(vocab_size, self.params, self.history, *shared)
        self.penalties = Penalties(vocab_size, *shared)
        self.processors = ProcessorSet(list(logits_processors), vocab_size, device, self.history)
        self._allowed = AllowedTokens(vocab_size, *shared)
        self._bias = LogitBias(vocab_size, *shared)
        dry = Dry(vocab_size, max_model_len, self.history, self._staging)
        mirostat = [Mirostat(version, *shared) for version in (1, 2)]
        # The stages of rows that use them, each list in order; see RowPlan for where they stand.
        self.editors: list[LogitsEditor] = [
            self.min_tokens,
            self._allowed,
            self._bias,
            self.bad_words,
        ]
        self._late_editors: list[LogitsEditor] = [
            dry,
            ThinkingBudget(vocab_size, self.params, self.history, self._staging),
        ]
        self._scalers: list[LogitsEditor] = [
            TopNSigma(self._staging),
            DynamicTemperature(self._staging),
        ]
        self._shapers: list[LogitsEditor] = [
            TypicalP(self._staging),
            ExcludeTopChoices(self.params, self._staging),
            *mirostat,
        ]
        self._mirostat = mirostat
        self._followers: list[TokenFollower] = [dry, *mirostat]
        users = {
            Feature.PENALTIES: self.penalties.users,
            Feature.ALLOWED: self._allowed.users,
            Feature.BIAS: self._bias.users,
            Feature.MIN_TOKENS: self.min_tokens.users,
        }
        self._features = FeatureRows(num_slots, users, self._staging)
        self.slot_states: list[SlotState] = [
            self.params,
            *self.editors,
            self.processors,
            self.penalties,
            *self._rare_stages,
            self.history,
        ]
        self._failures: dict[int, str] = {}
        self._tables: SlotTables | None = None
        self._plan: tuple[list[int], bool, RowPlan] | None = None
        self._variant: tuple[list[int], Variant] | None = None

    @property
    def _rare_stages(self) -> list[LogitsEditor]:
        return [*self._late_editors, *self._scalers, *self._shapers]

    def add(self, slot: int, new: NewRequestData) -> None:
        """Take in a request, new or resumed after a preemption.

        Parameters that can't be used, a plug-in's exception or a table that can't grow make the
        sampler report an error for the slot's rows; they do not raise here.
        """
        self.remove(slot)
        try:
            for state in self.slot_states:
                state.add(slot, new)
        except Exception as error:
            self.remove(slot)
            self._failures[slot] = f"{type(error).__name__}: {error}"
        self._features.note(slot)

    def remove(self, slot: int) -> None:
        """Forget a slot; nothing happens if it is not in use."""
        self._plan = self._variant = None
        self._failures.pop(slot, None)
        for state in self.slot_states:
            state.remove(slot)

    def flush(self) -> None:
        """Copy the changes since the last flush to the device, in one piece."""
        for state in self.slot_states:
            state.flush()
        self._features.flush()
        self._staging.flush()

    def commit(self, rows: SamplingRows, token_ids: Tensor, accepted: Tensor | None = None) -> None:
        """Append the step's tokens [R] to what looks back, on the device.

        With drafts, `accepted` [R] bool tells the rows whose tokens are part of the sequence;
        None means all.
        """
        plan = self.plan(rows)
        if plan.history is not None:
            self.history.commit(rows, plan.history, token_ids)
        if plan.penalties is not None:
            self.penalties.commit(plan.penalties, token_ids, accepted)
        elif plan.variant is Variant.EDITED:
            self.count_outputs(rows.slots, token_ids)
        for follower, subset in plan.followers:
            follower.commit(rows, subset, token_ids, accepted)
        self.advance(rows.slots_cpu)

    def count_outputs(self, slots: Tensor, token_ids: Tensor) -> None:
        """The device's part of `commit` for steps of Variant.EDITED: slots[R], token_ids[R]."""
        self.kernels.count_outputs(slots, token_ids, self.tables)

    def advance(self, slots: list[int]) -> None:
        """The host's part of `commit`, for steps whose device part a graph held."""
        if self.history.active:
            self.history.advance(slots)
        if self.min_tokens.active:
            for slot in self.min_tokens.advance(set(slots)):
                self._features.note(slot)
                self._plan = self._variant = None

    @property
    def tables(self) -> SlotTables:
        """The device tables by slot; another object once any of them has moved."""
        found = (
            self.penalties.seen,
            self.penalties.values,
            self._allowed.allowed,
            self._bias.ids,
            self._bias.values,
            self.min_tokens.ids,
            self.min_tokens.min_tokens,
        )
        old = self._tables
        if old is not None:
            known = (
                old.seen,
                old.penalties,
                old.allowed,
                old.bias_ids,
                old.bias_values,
                old.min_tokens_ids,
                old.min_tokens,
            )
            if all(new is kept for new, kept in zip(found, known, strict=True)):
                return old
        self._tables = SlotTables(self.params.table, self._features.table, *found)
        return self._tables

    def warm_up(self, logits: Tensor) -> None:
        """Run what steps must not wait for on logits[1, V], for the slot of padding."""
        if not self.kernels.PREFERS_DRAW:
            return
        slots = torch.tensor([self.params.table.shape[0] - 1], device=self.device)
        positions = torch.zeros(1, dtype=torch.int32, device=self.device)
        # Stage by stage, float32 logits are what is drawn from in the end.
        for given, edits in ((logits, False), (logits, True), (logits.float(), False)):
            token_ids, _ = self.kernels.draw(given, slots, positions, self.tables, edits=edits)
        self.count_outputs(slots, token_ids)
        masks = torch.full((1, (logits.shape[1] + 31) // 32), -1, dtype=torch.int32)
        self.kernels.keep_masked(logits, token_ids.new_zeros(1), masks.to(self.device))
        self.kernels.top_logprobs(logits, token_ids, 1, self.normalize_logprobs)

    def variant(self, slots: list[int]) -> Variant:
        """What the rows for `slots` need, one row each; found once for steps of the same slots."""
        if self._variant is None or self._variant[0] != slots:
            self._variant = list(slots), self._find_variant(slots)
        return self._variant[1]

    def plan(self, rows: SamplingRows) -> RowPlan:
        """The plan of a step; it is kept until the rows' slots or their requests change."""
        slots, drafts = rows.slots_cpu, rows.max_drafts > 0
        if self._plan is None or self._plan[1] != drafts or self._plan[0] != slots:
            self._plan = list(slots), drafts, self._make_plan(slots, drafts)
        return self._plan[2]

    def _find_variant(self, slots: list[int]) -> Variant:
        params = self.params
        variant = self._draw_variant(slots, drafts=False)
        wants_logprobs = _any(slots, params.logprobs) or _any(slots, params.all_logprobs)
        if wants_logprobs or _any(slots, self._failures):
            return Variant.HOST
        return variant

    def _draw_variant(self, slots: list[int], *, drafts: bool) -> Variant:
        """The kernels that make the tokens of rows for `slots`; HOST: stage by stage."""
        staged = _any(slots, self.bad_words.users)
        staged |= any(_any(slots, users) for users in self.processors.users)
        staged |= any(_any(slots, stage.users) for stage in self._rare_stages)
        edited = _any(slots, self.penalties.users)
        edited |= any(_any(slots, editor.users) for editor in self.editors)
        if staged or (edited and drafts):  # a draft counts as an output of the rows behind it
            return Variant.HOST
        if not edited and not _any(slots, self.params.random):
            return Variant.GREEDY
        if not self.kernels.PREFERS_DRAW:
            return Variant.HOST
        return Variant.EDITED if edited else Variant.RANDOM

    def _make_plan(self, slots: list[int], drafts: bool) -> RowPlan:
        params = self.params
        row_errors = {
            row: self._failures[slot] for row, slot in enumerate(slots) if slot in self._failures
        }
        variant = self._draw_variant(slots, drafts=drafts)
        some_logprobs = (params.logprobs, params.all_logprobs)
        if not self.raw_logprobs and any(_any(slots, wanted) for wanted in some_logprobs):
            variant = Variant.HOST  # logprobs are of what the stages leave
        if variant is not Variant.HOST:
            subsets = filter_rows(slots, some_logprobs, self.device)
            return RowPlan(variant, self._logprobs(slots, subsets), row_errors)
        stages = [*self.editors, *self._rare_stages]
        users = [
            *(stage.users for stage in stages),
            *self.processors.users,
            self.penalties.users,
            self.history.users,
            params.random,
            params.whole_softmax,
            params.truncated,
            params.min_p_users,
            *some_logprobs,
        ]
        subsets = filter_rows(slots, users, self.device)
        used = {
            stage: subset
            for stage, subset in zip(stages, subsets[: len(stages)], strict=True)
            if subset is not None
        }
        penalties, history, random, whole, truncated, min_p = subsets[-8:-2]
        return RowPlan(
            variant=variant,
            logprobs=self._logprobs(slots, subsets[-2:]),
            row_errors=row_errors,
            editors=_among(self.editors, used),
            late_editors=_among(self._late_editors, used),
            scalers=_among(self._scalers, used),
            shapers=_among(self._shapers, used),
            followers=_among(self._followers, used),
            mirostat=_among(self._mirostat, used),
            processors=subsets[len(stages) : -8],
            has_greedy=random is None or len(random.rows) < len(slots),
            penalties=penalties,
            history=history,
            random=random,
            whole_softmax=whole,
            truncated=truncated,
            min_p=min_p,
            num_candidates=params.num_candidates([slots[row] for row in truncated.rows])
            if truncated
            else 0,
        )

    def _logprobs(
        self, slots: list[int], subsets: list[RowSubset | None]
    ) -> list[tuple[RowSubset, list[int]]]:
        """The rows of the two kinds of logprobs with how many top ones each wants."""
        wanted = (self.params.logprobs, self.params.all_logprobs)
        return [
            (subset, [counts[slots[row]] for row in subset.rows])
            for subset, counts in zip(subsets, wanted, strict=True)
            if subset is not None
        ]


def _any(slots: list[int], users: Mapping[int, object]) -> bool:
    return bool(users) and any(slot in users for slot in slots)


def _among(
    stages: Sequence[_Stage], used: Mapping[LogitsEditor, RowSubset]
) -> list[tuple[_Stage, RowSubset]]:
    """Those of the stages that have rows, with their rows."""
    return [(stage, used[stage]) for stage in stages if stage in used]
