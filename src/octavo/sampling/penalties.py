"""Penalties: repetition, frequency and presence penalty, with counts kept on the device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from octavo.kernels.reference.sampling import PROMPT_FLAG
from octavo.kernels.slot_tables import PENALTIES_WIDTH
from octavo.sampling.interface import SamplingKernels, SamplingRows
from octavo.sampling.logit_bias import token_array
from octavo.sampling.row_filters import RowSubset
from octavo.sampling.staging import Staging
from octavo.sampling.tables import FixedTable, PaddedTable, TableState
from octavo.types.scheduler_output import NewRequestData


class Penalties(TableState):
    """One table row of V words per user: PROMPT_FLAG for a prompt token, plus its outputs.

    The row costs 4 bytes per token of the vocabulary, and only users have one.
    """

    def __init__(self, vocab_size: int, staging: Staging, kernels: SamplingKernels) -> None:
        super().__init__(staging, in_graphs=True)
        self._seen = FixedTable(self._rows, vocab_size, torch.int32)
        self._penalties = PaddedTable(self._rows, torch.float32, least_width=PENALTIES_WIDTH)
        self._vocab_size = vocab_size
        self._kernels = kernels

    @property
    def seen(self) -> Tensor:
        """[C, V] int32; see SlotTables."""
        return self._seen.data

    @property
    def values(self) -> Tensor:
        """[C, PENALTIES_WIDTH] float32; see SlotTables."""
        return self._penalties.data

    def add(self, slot: int, new: NewRequestData) -> None:
        """Count the tokens of the request, which may have been running before."""
        params = new.sampling_params
        values = [params.repetition_penalty, params.frequency_penalty, params.presence_penalty]
        if values == [1.0, 0.0, 0.0]:
            return
        tokens = token_array("token_ids", new.token_ids, self._vocab_size)
        prompt = np.unique(tokens[: new.num_prompt_tokens])
        outputs, counts = np.unique(tokens[new.num_prompt_tokens :], return_counts=True)
        self._rows.take(slot)
        self._penalties.write(slot, values)
        block = np.concatenate([prompt, outputs, counts]).astype(np.int32)
        sizes = [len(prompt), len(outputs), len(outputs)]
        self._rows.stage(slot, block, lambda row, part: self._write(row, *torch.split(part, sizes)))

    def apply(self, logits: Tensor, rows: SamplingRows, subset: RowSubset) -> None:
        """Apply the penalties; drafts before a row count as outputs."""
        penalties = self._penalties.data.index_select(0, subset.table_rows)[:, :3]
        drafts = rows.drafts_before(subset)
        self._kernels.apply_penalties(
            logits, subset.index, self._seen.data, subset.table_rows, penalties, drafts
        )

    def commit(self, subset: RowSubset, token_ids: Tensor, accepted: Tensor | None) -> None:
        """Count the step's tokens [R], where accepted[R]."""
        tokens = subset.take(token_ids)
        if accepted is None:
            ones = torch.ones_like(tokens, dtype=torch.int32)
        else:
            ones = subset.take(accepted).to(torch.int32)
        self._seen.data.index_put_((subset.table_rows, tokens), ones, accumulate=True)

    def _write(self, row: int, prompt: Tensor, outputs: Tensor, counts: Tensor) -> None:
        seen = self._seen.data[row].zero_()
        seen.index_fill_(0, prompt.to(torch.int64), PROMPT_FLAG)
        seen.index_add_(0, outputs.to(torch.int64), counts)
