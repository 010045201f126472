"""LogitsProcessor: the plug-in that changes logits in ways of its own, and how one is loaded."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from octavo.types.errors import ConfigError
from octavo.types.sampling_params import SamplingParams

# (output token ids so far, logits[V]) -> logits[V]; it may edit and return the row it got.
RowFunction = Callable[[list[int], Tensor], Tensor]


class ProcessorRows(Protocol):
    """The rows handed to `LogitsProcessor.apply`, U of them; a slot may have several."""

    @property
    def slots(self) -> list[int]:
        """The slot of each row."""

    @property
    def positions(self) -> Tensor:
        """[U] int64, on the device: index in its sequence of the token to be sampled."""

    @property
    def token_ids(self) -> Tensor:
        """[U, max_model_len] int32, on the device: prompt, outputs and the drafts before the row.

        Row u is complete before positions[u]; what follows means nothing. Needs `needs_history`.
        """

    def output_token_ids(self, row: int) -> list[int]:
        """Every output before row `row`, as real ids, up to the previous token.

        Needs `needs_history`. Free on a CPU; on other devices the first call of a step waits
        for the steps launched before.
        """

    def fail(self, row: int, error: Exception) -> None:
        """End the request of one row with an error; the other rows go on."""


class LogitsProcessor(ABC):
    """Changes the logits of the requests that ask for it, usually through `extra_args`.

    One object serves an engine. It runs before the penalties or, when `argmax_invariant`, after
    temperature and min_p and not for greedy rows. An exception in `add` or `apply` ends the
    requests it was called for and no others.
    """

    # Whether it never changes which logit is the largest.
    argmax_invariant: ClassVar[bool] = False
    # Whether it reads the tokens so far; they cost max_model_len words per request that uses it.
    needs_history: ClassVar[bool] = False

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        """Called once, when the engine starts."""
        self.vocab_size = vocab_size
        self.device = device

    @classmethod
    def validate(cls, params: SamplingParams) -> None:
        """Raise RequestError if the parameters meant for this processor can't be used."""
        return

    @abstractmethod
    def add(
        self,
        slot: int,
        params: SamplingParams,
        prompt_token_ids: list[int],
        output_token_ids: list[int],
    ) -> bool:
        """Take in a request; False if it does not use this processor.

        Outputs are given when a request resumes after a preemption: state that depends on the
        outputs is built anew from them.
        """

    @abstractmethod
    def remove(self, slot: int) -> None:
        """Forget a slot for which `add` returned True."""

    @abstractmethod
    def apply(self, logits: Tensor, rows: ProcessorRows) -> Tensor:
        """The new logits[U, V] float32 of the rows; `logits` may be edited and returned."""


class PerRequestProcessor(LogitsProcessor):
    """A LogitsProcessor made of one function per request; its rows fail one by one.

    Simple rather than fast: a call per row and step, and on a GPU a wait per step.
    """

    needs_history = True

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        super().__init__(vocab_size, device)
        self._functions: dict[int, RowFunction] = {}

    @abstractmethod
    def new_request(self, params: SamplingParams) -> RowFunction | None:
        """The function for a request, None if it needs none."""

    def add(
        self,
        slot: int,
        params: SamplingParams,
        prompt_token_ids: list[int],
        output_token_ids: list[int],
    ) -> bool:
        """Ask for the request's function."""
        function = self.new_request(params)
        if function is not None:
            self._functions[slot] = function
        return function is not None

    def remove(self, slot: int) -> None:
        """Forget the slot's function."""
        self._functions.pop(slot, None)

    def apply(self, logits: Tensor, rows: ProcessorRows) -> Tensor:
        """Call each row's function."""
        for row, slot in enumerate(rows.slots):
            try:
                logits[row] = self._functions[slot](rows.output_token_ids(row), logits[row])
            except Exception as error:
                rows.fail(row, error)
        return logits


def load_processors(names: Iterable[str]) -> list[type[LogitsProcessor]]:
    """The classes that "module:Class" strings name; ConfigError says which can't be had."""
    classes = []
    for name in names:
        module, _, attribute = name.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(
                f"logits_processors holds {name!r}, which can't be imported: {error}; "
                'write "module:Class"'
            ) from error
        if not (isinstance(found, type) and issubclass(found, LogitsProcessor)):
            raise ConfigError(
                f"logits_processors holds {name!r}, which is not a subclass of "
                "octavo.sampling.processors.LogitsProcessor"
            )
        classes.append(found)
    return classes
