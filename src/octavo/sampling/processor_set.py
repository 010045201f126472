"""ProcessorSet: runs the LogitsProcessor plug-ins, each on the rows that use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from octavo.sampling.history import TokenHistory
from octavo.sampling.host_history import HostHistory
from octavo.sampling.interface import SamplingRows
from octavo.sampling.processors import LogitsProcessor
from octavo.sampling.row_filters import RowSubset
from octavo.sampling.slot_params import is_greedy
from octavo.types.scheduler_output import NewRequestData
from octavo.utils.logging import get_logger

logger = get_logger(__name__)


class ProcessorSet:
    """The plug-ins of an engine, in order, and the slots that use each."""

    def __init__(
        self,
        classes: Sequence[type[LogitsProcessor]],
        vocab_size: int,
        device: torch.device,
        history: TokenHistory,
    ) -> None:
        self._processors = [make(vocab_size, device) for make in classes]
        self._users: list[dict[int, int]] = [{} for _ in self._processors]
        self._history = history
        self._host_history = HostHistory(history)

    @property
    def active(self) -> int:
        """Uses of a plug-in by a slot."""
        return sum(len(users) for users in self._users)

    @property
    def users(self) -> Sequence[Mapping[int, int]]:
        """For each plug-in: slots that use it -> rows of the history, 0 if it reads none."""
        return self._users

    def add(self, slot: int, new: NewRequestData) -> None:
        """Offer the request to every plug-in."""
        params = new.sampling_params
        for processor, users in zip(self._processors, self._users, strict=True):
            processor.validate(params)
            if processor.argmax_invariant and is_greedy(params):
                continue
            prompt = new.token_ids[: new.num_prompt_tokens]
            outputs = new.token_ids[new.num_prompt_tokens :]
            if processor.add(slot, params, prompt, outputs):
                users[slot] = 0
                if processor.needs_history:
                    users[slot] = self._host_history.keep(slot, new)

    def remove(self, slot: int) -> None:
        """Tell the plug-ins that used the slot; one that fails at it is named in the log."""
        for processor, users in zip(self._processors, self._users, strict=True):
            if users.pop(slot, None) is None:
                continue
            try:
                processor.remove(slot)
            except Exception:
                logger.exception("%s failed to remove a request", type(processor).__name__)
        self._host_history.remove(slot)

    def flush(self) -> None:
        """Plug-ins look after their own device state."""

    def apply(
        self,
        logits: Tensor,
        rows: SamplingRows,
        subsets: Sequence[RowSubset | None],
        *,
        argmax_invariant: bool,
    ) -> dict[int, str]:
        """Run the plug-ins of one kind on logits[R, V]; the texts of rows that failed.

        A plug-in gets its users' rows and no others, so an error can't spread.
        """
        errors: dict[int, str] = {}
        for processor, subset in zip(self._processors, subsets, strict=True):
            if subset is None or processor.argmax_invariant != argmax_invariant:
                continue
            name = type(processor).__name__
            view = _Rows(rows, subset, self._history, self._host_history)
            view.readable = processor.needs_history
            try:
                _put(logits, subset, processor.apply(subset.take(logits), view))
            except Exception as error:
                errors |= {row: _describe(name, error) for row in subset.rows}
            for row, failure in view.failures.items():
                errors[subset.rows[row]] = _describe(name, failure)
        return errors


class _Rows:
    """ProcessorRows over a subset of a step's rows; the host's history is read on first use."""

    def __init__(
        self,
        rows: SamplingRows,
        subset: RowSubset,
        history: TokenHistory,
        host_history: HostHistory,
    ) -> None:
        self.slots = [rows.slots_cpu[row] for row in subset.rows]
        self.positions = subset.take(rows.positions)
        self.failures: dict[int, Exception] = {}
        self.readable = False
        self._rows = rows
        self._subset = subset
        self._history = history
        self._host_history = host_history
        self._outputs: list[list[int]] | None = None

    @property
    def token_ids(self) -> Tensor:
        self._check_readable()
        known = self._history.sequences(self._rows, self._subset, self._subset.table_rows)
        tokens = known.new_zeros(known.shape[0], self._history.tokens.shape[1])
        tokens[:, : known.shape[1]] = known
        return tokens

    def output_token_ids(self, row: int) -> list[int]:
        self._check_readable()
        if self._outputs is None:
            self._outputs = self._host_history.read(self._rows, self._subset)
        return self._outputs[row]

    def fail(self, row: int, error: Exception) -> None:
        self.failures[row] = error

    def _check_readable(self) -> None:
        if not self.readable:
            raise RuntimeError("it reads tokens without needs_history = True")


def _put(logits: Tensor, subset: RowSubset, result: Tensor) -> None:
    shape = (len(subset.rows), logits.shape[1])
    if result.shape != shape:
        raise ValueError(f"it returned logits of shape {tuple(result.shape)}, not {shape}")
    if subset.index is None:
        logits.copy_(result)
    else:
        logits.index_copy_(0, subset.index, result.to(logits.dtype))


def _describe(name: str, error: Exception) -> str:
    return f"logits processor {name} failed: {type(error).__name__}: {error}"
