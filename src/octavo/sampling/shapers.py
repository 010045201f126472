"""Stages that keep nothing from token to token: top-n-sigma, dynatemp, typical-p, XTC."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from octavo.kernels.reference import sampling as reference
from octavo.kernels.reference import shaping
from octavo.sampling.interface import SamplingRows
from octavo.sampling.row_filters import RowSubset
from octavo.sampling.slot_params import SlotParams, is_greedy
from octavo.sampling.staging import Staging
from octavo.sampling.tables import PaddedTable, TableState
from octavo.types.sampling_params import MIN_TEMPERATURE, SamplingParams
from octavo.types.scheduler_output import NewRequestData

# No token has this id: the noise that belongs to it decides whether XTC fires.
_COIN = -1


class Shaper(TableState):
    """A stage of the rows that are drawn, with a few numbers for each of its users."""

    def __init__(self, staging: Staging) -> None:
        super().__init__(staging)
        self._values = PaddedTable(self._rows, torch.float32)

    @abstractmethod
    def numbers(self, params: SamplingParams) -> list[float] | None:
        """What the stage works with; None if the request has no use for it."""

    @abstractmethod
    def shape(self, x: Tensor, values: Tensor, rows: SamplingRows, subset: RowSubset) -> Tensor:
        """The new logits of x[U, V], which may not be written to; values[U, >= N]."""

    def add(self, slot: int, new: NewRequestData) -> None:
        """Take in the request."""
        if is_greedy(new.sampling_params):
            return
        numbers = self.numbers(new.sampling_params)
        if numbers is not None:
            self._rows.take(slot)
            self._values.write(slot, numbers)

    def apply(self, logits: Tensor, rows: SamplingRows, subset: RowSubset) -> None:
        """Change the rows of the subset."""
        values = self._values.data.index_select(0, subset.table_rows)
        result = self.shape(subset.take(logits), values, rows, subset)
        if subset.index is None:
            logits.copy_(result)
        else:
            logits.index_copy_(0, subset.index, result)


class TopNSigma(Shaper):
    """top_n_sigma: bars logits far below the largest, in standard deviations."""

    def numbers(self, params: SamplingParams) -> list[float] | None:
        """See Shaper."""
        return [params.top_n_sigma] if params.top_n_sigma > 0.0 else None

    def shape(self, x: Tensor, values: Tensor, rows: SamplingRows, subset: RowSubset) -> Tensor:
        """See Shaper."""
        return x.masked_fill(shaping.top_n_sigma(x, values[:, 0]), -torch.inf)


class DynamicTemperature(Shaper):
    """dynatemp_*: a temperature between temperature -+ dynatemp_range, higher where the model is
    less certain. SlotParams leaves the temperature of its users to it.
    """

    def numbers(self, params: SamplingParams) -> list[float] | None:
        """See Shaper."""
        if params.dynatemp_range == 0.0:
            return None
        low = max(params.temperature - params.dynatemp_range, MIN_TEMPERATURE)
        return [low, params.temperature + params.dynatemp_range, params.dynatemp_exponent]

    def shape(self, x: Tensor, values: Tensor, rows: SamplingRows, subset: RowSubset) -> Tensor:
        """See Shaper."""
        low, high, exponent = values[:, :3].unbind(1)
        return x / shaping.dynamic_temperatures(x, low, high, exponent)[:, None]


class TypicalP(Shaper):
    """typical_p: keeps the tokens that surprise as much as is to be expected."""

    def numbers(self, params: SamplingParams) -> list[float] | None:
        """See Shaper."""
        return [params.typical_p] if params.typical_p < 1.0 else None

    def shape(self, x: Tensor, values: Tensor, rows: SamplingRows, subset: RowSubset) -> Tensor:
        """See Shaper."""
        return x.masked_fill(shaping.typical(x, values[:, 0]), -torch.inf)


class ExcludeTopChoices(Shaper):
    """xtc_*: now and then bars all likely tokens but the least likely of them."""

    def __init__(self, params: SlotParams, staging: Staging) -> None:
        super().__init__(staging)
        self._params = params

    def numbers(self, params: SamplingParams) -> list[float] | None:
        """See Shaper."""
        if params.xtc_probability == 0.0:
            return None
        return [params.xtc_probability, params.xtc_threshold]

    def shape(self, x: Tensor, values: Tensor, rows: SamplingRows, subset: RowSubset) -> Tensor:
        """See Shaper."""
        slots = subset.take(rows.slots)
        keys = reference.row_keys(
            self._params.seed_low.index_select(0, slots),
            self._params.seed_high.index_select(0, slots),
            subset.take(rows.positions).to(torch.int32),
        )
        coin = torch.full((1, 1), _COIN, dtype=torch.int32, device=x.device)
        fires = reference.uniform(reference.hash_tokens(keys, coin))[:, 0] < values[:, 0]
        barred = shaping.exclude_top_choices(x, values[:, 1], fires)
        return x.masked_fill(barred, -torch.inf)
