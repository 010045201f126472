"""HostHistory: outputs of the slots with host-side plug-ins, read from the device as they grow."""

from __future__ import annotations

import torch

from octavo.sampling.history import TokenHistory
from octavo.sampling.interface import SamplingRows
from octavo.sampling.row_filters import RowSubset, upload_ints
from octavo.types.scheduler_output import NewRequestData


class HostHistory:
    """The output tokens of some slots as lists, at most one read behind the device's."""

    def __init__(self, history: TokenHistory) -> None:
        self._history = history
        self._outputs: dict[int, list[int]] = {}
        self._prompt_len: dict[int, int] = {}

    def keep(self, slot: int, new: NewRequestData) -> int:
        """Follow a slot's outputs; its row in the device's history."""
        self._outputs[slot] = new.token_ids[new.num_prompt_tokens :]
        self._prompt_len[slot] = new.num_prompt_tokens
        return self._history.keep(slot, new)

    def remove(self, slot: int) -> None:
        """Forget the slot."""
        self._outputs.pop(slot, None)
        self._prompt_len.pop(slot, None)

    def read(self, rows: SamplingRows, subset: RowSubset) -> list[list[int]]:
        """The outputs before each row of the subset, drafts included; waits for the device.

        Only tokens that the host has not seen are fetched, all rows' in one go.
        """
        positions = subset.take(rows.positions)
        if rows.draft_offsets is None or rows.draft_token_ids is None:
            offsets, drafts = [0] * len(subset.rows), []
        else:
            offsets = subset.take(rows.draft_offsets).tolist()
            drafts = rows.draft_token_ids.tolist()
        slots = [rows.slots_cpu[row] for row in subset.rows]
        known = [self._prompt_len[slot] + len(self._outputs[slot]) for slot in slots]
        ends = [p - offset for p, offset in zip(positions.tolist(), offsets, strict=True)]
        self._fetch(subset, slots, known, ends)
        result = []
        for row, slot, offset in zip(subset.rows, slots, offsets, strict=True):
            result.append(self._outputs[slot] + drafts[row - offset + 1 : row + 1])
        return result

    def _fetch(
        self, subset: RowSubset, slots: list[int], known: list[int], ends: list[int]
    ) -> None:
        missing = max(end - start for start, end in zip(known, ends, strict=True))
        if missing <= 0:
            return
        tokens = self._history.tokens
        columns = upload_ints(known, tokens.device)[:, None]
        columns = self._history.columns(columns + torch.arange(missing, device=tokens.device))
        fetched = tokens[subset.table_rows[:, None], columns].tolist()
        done: set[int] = set()
        for slot, start, end, values in zip(slots, known, ends, fetched, strict=True):
            if slot not in done:
                self._outputs[slot] += values[: end - start]
                done.add(slot)
