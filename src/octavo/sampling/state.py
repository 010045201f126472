"""SamplingState: every request's sampling parameters and history, held on the device by slot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.kernels.reference import sampling as reference
from octavo.sampling.bad_words import BadWords
from octavo.sampling.history import TokenHistory
from octavo.sampling.interface import (
    LogitsEditor,
    SamplingKernels,
    SamplingRows,
    SlotState,
)
from octavo.sampling.logit_bias import AllowedTokens, LogitBias, MinTokens
from octavo.sampling.penalties import Penalties
from octavo.sampling.processor_set import ProcessorSet
from octavo.sampling.processors import LogitsProcessor
from octavo.sampling.row_filters import RowSubset, filter_rows
from octavo.sampling.slot_params import SlotParams
from octavo.sampling.staging import Staging
from octavo.types.scheduler_output import NewRequestData


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Which rows of a step go through which stage; None where no row does."""

    editors: list[tuple[LogitsEditor, RowSubset]]  # before the plug-ins, in order
    processors: list[RowSubset | None]  # one per plug-in
    penalties: RowSubset | None
    history: RowSubset | None
    random: RowSubset | None  # all that are not greedy
    whole_softmax: RowSubset | None  # random ones without top-k and top-p
    truncated: RowSubset | None  # random ones with top-k or top-p
    min_p: RowSubset | None
    has_greedy: bool
    changes_logits: bool
    logprobs: list[tuple[RowSubset, list[int]]]  # and how many top ones per row
    num_candidates: int  # for the truncated rows
    row_errors: dict[int, str]


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
        self._staging = Staging(device)
        shared = (self._staging, kernels)
        self.params = SlotParams(num_slots, vocab_size, self._staging)
        self.history = TokenHistory(max_model_len, self._staging)
        self.min_tokens = MinTokens(vocab_size, self.params, *shared)
        self.bad_words = BadWords(vocab_size, self.params, self.history, *shared)
        self.penalties = Penalties(vocab_size, *shared)
        self.processors = ProcessorSet(list(logits_processors), vocab_size, device, self.history)
        self.editors: list[LogitsEditor] = [
            self.min_tokens,
            AllowedTokens(vocab_size, *shared),
            LogitBias(vocab_size, *shared),
            self.bad_words,
        ]
        self.slot_states: list[SlotState] = [
            self.params,
            *self.editors,
            self.processors,
            self.penalties,
            self.history,
        ]
        self._failures: dict[int, str] = {}
        self._planned_slots: list[int] = []
        self._plan: RowPlan | None = None

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

    def remove(self, slot: int) -> None:
        """Forget a slot; nothing happens if it is not in use."""
        self._plan = None
        self._failures.pop(slot, None)
        for state in self.slot_states:
            state.remove(slot)

    def flush(self) -> None:
        """Copy the changes since the last flush to the device, in one piece."""
        for state in self.slot_states:
            state.flush()
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
        if self.min_tokens.active and self.min_tokens.advance(set(rows.slots_cpu)):
            self._plan = None

    def plan(self, rows: SamplingRows) -> RowPlan:
        """The plan of a step; it is kept until the rows' slots or their requests change."""
        return self._plan_of(rows.slots_cpu)

    def all_greedy(self, slots: list[int]) -> bool:
        """Whether rows for `slots` take the highest of the logits as they come, and no more.

        Then a step needs nothing of this state, on the host or on the device.
        """
        plan = self._plan_of(slots)
        return not (plan.changes_logits or plan.logprobs or plan.row_errors)

    def _plan_of(self, slots: list[int]) -> RowPlan:
        if self._plan is None or self._planned_slots != slots:
            self._plan = self._make_plan(slots)
            self._planned_slots = list(slots)
        return self._plan

    def _make_plan(self, slots: list[int]) -> RowPlan:
        params = self.params
        users = [
            *(editor.users for editor in self.editors),
            *self.processors.users,
            self.penalties.users,
            self.history.users,
            params.random,
            params.whole_softmax,
            params.truncated,
            params.min_p_users,
            params.logprobs,
            params.all_logprobs,
        ]
        subsets = filter_rows(slots, users, self.device)
        num_editors = len(self.editors)
        editors = zip(self.editors, subsets[:num_editors], strict=True)
        penalties, history, random, whole, truncated, min_p, some, every = subsets[-8:]
        logprobs = []
        for subset, wanted in ((some, params.logprobs), (every, params.all_logprobs)):
            if subset is not None:
                logprobs.append((subset, [wanted[slots[row]] for row in subset.rows]))
        return RowPlan(
            editors=[(editor, subset) for editor, subset in editors if subset is not None],
            processors=subsets[num_editors:-8],
            has_greedy=random is None or len(random.rows) < len(slots),
            changes_logits=any(subset is not None for subset in subsets[:-2]),
            penalties=penalties,
            history=history,
            random=random,
            whole_softmax=whole,
            truncated=truncated,
            min_p=min_p,
            logprobs=logprobs,
            num_candidates=params.num_candidates([slots[row] for row in truncated.rows])
            if truncated
            else 0,
            row_errors={
                row: self._failures[slot]
                for row, slot in enumerate(slots)
                if slot in self._failures
            },
        )
