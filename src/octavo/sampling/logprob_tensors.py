"""LogprobTensors: logprobs of some rows on the device, and their way to plain lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.types.engine_output import TokenLogprobs

# What stands for -inf, which JSON can't hold. No smaller number is reported.
LOGPROB_FLOOR = -9999.0


@dataclass(frozen=True, slots=True)
class LogprobTensors:
    """L entries of different lengths, one after the other (N values in all).

    Entry i is of row `rows[i]` and fills `lengths[i]` values from `starts[i]`: the chosen token,
    then the top ones in order. All values are finite.
    """

    rows: list[int]
    starts: list[int]
    lengths: list[int]
    token_ids: Tensor  # [N] int32
    logprobs: Tensor  # [N] float32
    ranks: Tensor  # [L] int32: of the chosen token, from 1

    def map(self, copy: Callable[[Tensor], Tensor]) -> LogprobTensors:
        """The same with each tensor replaced by `copy(tensor)`, for the way to the host."""
        tensors = (copy(self.token_ids), copy(self.logprobs), copy(self.ranks))
        return LogprobTensors(self.rows, self.starts, self.lengths, *tensors)

    def to_lists(self) -> dict[int, TokenLogprobs]:
        """Row -> logprobs. Waits for the device if the tensors are still there."""
        token_ids = self.token_ids.tolist()
        logprobs = self.logprobs.tolist()
        result = {}
        spans = zip(self.rows, self.starts, self.lengths, self.ranks.tolist(), strict=True)
        for row, start, length, rank in spans:
            stop = start + length
            result[row] = TokenLogprobs(token_ids[start:stop], logprobs[start:stop], rank)
        return result

    @staticmethod
    def join(parts: Sequence[LogprobTensors]) -> LogprobTensors | None:
        """All entries of the parts, in order; None for no parts."""
        if len(parts) < 2:
            return parts[0] if parts else None
        starts: list[int] = []
        offset = 0
        for part in parts:
            starts += [offset + start for start in part.starts]
            offset += part.token_ids.shape[0]
        return LogprobTensors(
            [row for part in parts for row in part.rows],
            starts,
            [length for part in parts for length in part.lengths],
            torch.cat([part.token_ids for part in parts]),
            torch.cat([part.logprobs for part in parts]),
            torch.cat([part.ranks for part in parts]),
        )
