"""Mirostat: truncation that steers the surprise of the text towards a target."""

from __future__ import annotations

import torch
from torch import Tensor

from octavo.kernels.reference.shaping import log_totals, mirostat, mirostat_top_k, surprises
from octavo.sampling.interface import SamplingKernels, SamplingRows
from octavo.sampling.row_filters import RowSubset
from octavo.sampling.slot_params import is_greedy
from octavo.sampling.staging import Staging
from octavo.sampling.tables import PaddedTable, TableState
from octavo.types.scheduler_output import NewRequestData


class Mirostat(TableState):
    """mirostat_*: Basu et al. 2021, "Mirostat: A Neural Text Decoding Algorithm that Directly
    Controls Perplexity" (arXiv 2007.14966), version 1 or 2.

    A request has a mu, at first twice mirostat_tau. Version 2 bars tokens of a surprise above mu
    bits, version 1 all but the k likeliest, k estimated for mu bits. The token drawn, which tells S
    bits by what the stages before leave, moves mu by -mirostat_eta * (S - mirostat_tau).

    No tokens tell what mu is. So it leaves with the results of each step, and a request that
    resumes brings it along.
    """

    def __init__(self, version: int, staging: Staging, kernels: SamplingKernels) -> None:
        super().__init__(staging)
        self._version = version
        self._values = PaddedTable(self._rows, torch.float32)  # mu, tau, eta
        self._kernels = kernels
        # Of the step between `apply` and `commit`, one entry per row of the subset: mu before the
        # row and, once its token is known, after it; the log of sum exp(logits).
        self._mu = self._log_totals = torch.empty(0)

    def add(self, slot: int, new: NewRequestData) -> None:
        """Take in the request."""
        params = new.sampling_params
        if params.mirostat_mode != self._version or is_greedy(params):
            return
        mu = 2 * params.mirostat_tau if new.mirostat_mu is None else new.mirostat_mu
        self._rows.take(slot)
        self._values.write(slot, [mu, params.mirostat_tau, params.mirostat_eta])

    def apply(self, logits: Tensor, rows: SamplingRows, subset: RowSubset) -> None:
        """Bar tokens; drafts before a row have moved its mu."""
        x = subset.take(logits)
        mu, tau, eta = self._parameters(subset)
        totals = log_totals(x)
        if rows.draft_offsets is not None and rows.draft_token_ids is not None:
            offsets = subset.take(rows.draft_offsets)
            drafts = subset.take(rows.draft_token_ids).clamp(min=0)
            # What the draft before row u tells, by the distribution of row u - 1.
            moves = eta * (surprises(x.roll(1, dims=0), drafts, totals.roll(1)) - tau)
            for offset in range(1, rows.max_drafts + 1):
                mu = torch.where(offsets == offset, mu.roll(1) - moves, mu)
        self._mu, self._log_totals = mu, totals
        if self._version == 1:
            whole = torch.ones_like(mu)
            top_k = mirostat_top_k(x, mu)
            self._kernels.truncate(logits, subset.index, top_k, whole, logits.shape[1])
            return
        barred = mirostat(x, mu)
        if subset.index is None:
            logits.masked_fill_(barred, -torch.inf)
        else:
            logits.index_copy_(0, subset.index, x.masked_fill(barred, -torch.inf))

    def observe(self, logits: Tensor, subset: RowSubset, token_ids: Tensor) -> Tensor:
        """[U] float32: mu after the tokens [R] drawn from logits[R, V], each the last of its slot.

        Logits that survive are what they were before `apply`.
        """
        _, tau, eta = self._parameters(subset)
        told = surprises(subset.take(logits), subset.take(token_ids), self._log_totals)
        self._mu = self._mu - eta * (told - tau)
        return self._mu

    def commit(
        self, rows: SamplingRows, subset: RowSubset, token_ids: Tensor, accepted: Tensor | None
    ) -> None:
        """Keep the mu after the last token of each slot, of those that are accepted[R]."""
        mu, _, _ = self._parameters(subset)
        for new, counts in rows.in_turn(subset, self._mu, accepted):
            mu = torch.where(counts, new, mu)
        # The rows of a slot hold the same by now.
        self._values.data[subset.table_rows, 0] = mu

    def _parameters(self, subset: RowSubset) -> tuple[Tensor, Tensor, Tensor]:
        """(mu, tau, eta), [U] each."""
        mu, tau, eta = self._values.data.index_select(0, subset.table_rows)[:, :3].unbind(1)
        return mu, tau, eta
