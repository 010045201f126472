"""What the sampler is given and gives back, and the protocols of its parts."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from octavo.kernels.slot_tables import SlotTables
from octavo.sampling.logprob_tensors import LogprobTensors
from octavo.sampling.row_filters import RowSubset
from octavo.types.scheduler_output import NewRequestData


class Variant(enum.Enum):
    """How far a step's sampling goes, and so which kernels of `SamplingKernels` make its tokens.

    The first three read parameters and histories by slot from `SlotTables` and nothing from the
    host, so a graph can hold them and be replayed for other slots and other parameters. Three,
    because each avoids a pass over the logits that the next one needs: GREEDY one without
    exponentials, RANDOM (temperature, min-p, top-k, top-p, and greedy rows among them) one over
    the logits as the model gave them, EDITED one that writes a float32 copy. More would only tell
    apart what costs an empty program: a row without truncation, a slot without penalties.

    HOST is everything else: plug-ins, bad words of several tokens, logprobs, parameters that could
    not be used. So is what the host makes after the forward pass has been launched: a grammar's
    masks of the tokens allowed next (TokenMasks). They are applied to the raw logits, and the rest
    is `draw` as ever, though not in a graph.
    """

    GREEDY = enum.auto()
    RANDOM = enum.auto()
    EDITED = enum.auto()
    HOST = enum.auto()


@dataclass(frozen=True, slots=True)
class SamplingRows:
    """The positions to sample in one step: R rows, row r for slot `slots[r]`.

    Logits, too, are rows by (slot, position): nothing else ties a row to its request, so the rows
    of drafts to verify are rows like others, gathered from wherever the forward pass left them.

    A slot with drafts has one row per draft and one more; they are consecutive, in order of
    position. `draft_token_ids[r]` is the draft just before row r's position, and
    `draft_offsets[r]` says how many drafts of this step come before it (0: none, and
    `draft_token_ids[r]` is not read). Without drafts in the step both are None.
    """

    slots: Tensor  # [R] int64
    positions: Tensor  # [R] int64: index in its sequence of the token to be sampled
    slots_cpu: list[int]
    draft_token_ids: Tensor | None = None  # [R] int64
    draft_offsets: Tensor | None = None  # [R] int64
    max_drafts: int = 0  # the largest draft offset, known to the host

    def draft_at(self, subset: RowSubset, distance: int) -> tuple[Tensor, Tensor] | None:
        """The drafts `distance` >= 1 places before the rows' positions.

        Returns (token ids [U] int64, [U] bool whether a draft is there), None if no row has one.
        """
        if self.draft_token_ids is None or self.draft_offsets is None:
            return None
        if distance > self.max_drafts:
            return None
        there = subset.take(self.draft_offsets) >= distance
        if distance == 1:
            return subset.take(self.draft_token_ids), there
        # Rolled round, not clamped: what wraps is masked, for a row has fewer rows before it.
        return subset.take(self.draft_token_ids.roll(distance - 1)), there

    def drafts_before(self, subset: RowSubset) -> tuple[Tensor, Tensor] | None:
        """All drafts before the rows' positions: ([U, D] int64, [U, D] bool), or None."""
        columns = [self.draft_at(subset, d) for d in range(1, self.max_drafts + 1)]
        found = [column for column in columns if column is not None]
        if not found:
            return None
        token_ids, there = zip(*found, strict=True)
        return torch.stack(token_ids, dim=1), torch.stack(there, dim=1)

    def in_turn(
        self, subset: RowSubset, values: Tensor, accepted: Tensor | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """(values [U], [U] bool whether they count) of the first row of each row's slot, then of
        the second, and so on: for states that take one token after the other.

        `values` [U] are the rows' own, `accepted` [R] as in SamplingState.commit. Each row of a
        slot gets the same. The rows of a slot are all in the subset.
        """
        kept = torch.ones_like(values, dtype=torch.bool)
        if accepted is not None:
            kept = subset.take(accepted)
        if self.draft_offsets is None:
            yield values, kept
            return
        offsets = subset.take(self.draft_offsets)
        first = torch.arange(values.shape[0], device=values.device) - offsets
        for offset in range(self.max_drafts + 1):
            # Behind a slot's last row comes one of a smaller offset.
            at = (first + offset).clamp_(max=values.shape[0] - 1)
            yield values[at], kept[at] & (offsets[at] == offset)


@dataclass(frozen=True, slots=True)
class RowValues:
    """A number for some rows."""

    rows: list[int]
    values: Tensor  # [len(rows)] float32


@dataclass(frozen=True, slots=True)
class SamplerOutput:
    """One token per row, on the device.

    A row in `nan_rows` had no finite largest logit (NaN, infinity, or every token masked); its
    token is 0 and means nothing. `row_errors` holds what the host knows already: the text of a
    failed plug-in or of parameters that could not be used, by row.
    """

    token_ids: Tensor  # [R] int64
    nan_rows: Tensor  # [R] bool
    logprobs: LogprobTensors | None = None
    # For rows with mirostat: their mu after the token, to be given back when the request resumes.
    mirostat_mu: list[RowValues] = field(default_factory=list)
    row_errors: dict[int, str] = field(default_factory=dict)


class SlotState(Protocol):
    """State that some requests keep on the device while they hold a slot."""

    @property
    def active(self) -> int:
        """How many slots use this state; at 0 a step does nothing for it."""

    def add(self, slot: int, new: NewRequestData) -> None:
        """Take in a request, new or resumed; its history is all in `new`."""

    def remove(self, slot: int) -> None:
        """Forget the slot; nothing happens if it does not use this state."""

    def flush(self) -> None:
        """Hand the changes since the last flush to the staging buffer."""


class LogitsEditor(SlotState, Protocol):
    """A SlotState that changes the logits of its users' rows."""

    @property
    def users(self) -> Mapping[int, int]:
        """Slots that use it -> their rows in its tables."""

    def apply(self, logits: Tensor, rows: SamplingRows, subset: RowSubset) -> None:
        """Edit logits[R, V] in place at the rows of `subset`, which belong to users."""


class TokenFollower(LogitsEditor, Protocol):
    """A LogitsEditor with state on the device that the tokens of each step move on."""

    def commit(
        self, rows: SamplingRows, subset: RowSubset, token_ids: Tensor, accepted: Tensor | None
    ) -> None:
        """Take in the step's tokens [R], of those of drafted rows the accepted[R]; None: all."""


class SamplingKernels(Protocol):
    """The device functions of sampling; `octavo.kernels.reference.sampling` defines each one."""

    PREFERS_DRAW: bool  # whether `draw` beats the other functions on the rows that need them

    def draw(
        self, logits: Tensor, slots: Tensor, positions: Tensor, tables: SlotTables, *, edits: bool
    ) -> tuple[Tensor, Tensor]: ...

    def count_outputs(self, slots: Tensor, token_ids: Tensor, tables: SlotTables) -> None: ...

    def row_keys(
        self, seed_low: Tensor, seed_high: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor]: ...

    def greedy(self, logits: Tensor) -> Tensor: ...

    def finite_rows(self, logits: Tensor) -> Tensor: ...

    def greedy_checked(self, logits: Tensor) -> tuple[Tensor, Tensor]: ...

    def sample(
        self, logits: Tensor, index: Tensor | None, keys: tuple[Tensor, Tensor]
    ) -> Tensor: ...

    def sample_truncated(
        self,
        logits: Tensor,
        index: Tensor | None,
        top_k: Tensor,
        top_p: Tensor,
        keys: tuple[Tensor, Tensor],
        num_candidates: int,
    ) -> Tensor: ...

    def truncate(
        self,
        logits: Tensor,
        index: Tensor | None,
        top_k: Tensor,
        top_p: Tensor,
        num_candidates: int,
    ) -> None: ...

    def apply_min_p(self, logits: Tensor, index: Tensor | None, log_min_p: Tensor) -> None: ...

    def apply_penalties(
        self,
        logits: Tensor,
        index: Tensor | None,
        seen: Tensor,
        seen_rows: Tensor,
        penalties: Tensor,
        drafts: tuple[Tensor, Tensor] | None,
    ) -> None: ...

    def add_at(
        self, logits: Tensor, index: Tensor | None, token_ids: Tensor, values: Tensor
    ) -> None: ...

    def keep_only(
        self, logits: Tensor, index: Tensor | None, allowed: Tensor, allowed_rows: Tensor
    ) -> None: ...

    def keep_masked(self, logits: Tensor, index: Tensor, masks: Tensor) -> None: ...

    def top_logprobs(
        self, logits: Tensor, token_ids: Tensor, num_top: int, normalize: bool
    ) -> tuple[Tensor, Tensor, Tensor]: ...
