"""RequestOutputCollector and OutputTap: the ways of outputs from the output task to a reader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from octavo.types.outputs import RequestOutput
from octavo.types.sampling_params import RequestOutputKind


class OutputTap:
    """A reader's way to deal with outputs where they are made, without being woken for each.

    While the reader waits, `take` gets every output but the last, in order with those that the
    reader is given. It returns False, having done nothing, for an output that the reader is to be
    given after all. What it raises ends the stream.

    `take_text` gets the same of outputs that would hold nothing but a delta, as (index of the
    sequence, text, token ids), without an object being made for them. Not the first one of a
    sequence. Without it they go to `take`.
    """

    __slots__ = ("take", "take_text")

    def __init__(self) -> None:
        self.take: Callable[[RequestOutput], bool] | None = None
        self.take_text: Callable[[int, str, list[int]], bool] | None = None


class RequestOutputCollector:
    """Holds at most one output: what comes while the reader is away is merged into it.

    So a slow reader costs no memory beyond its own text, and gets fewer, larger outputs.
    """

    def __init__(self, kind: RequestOutputKind, tap: OutputTap | None = None) -> None:
        self._tap = tap
        self._aggregate = kind is RequestOutputKind.DELTA
        self._output: RequestOutput | None = None
        self._error: Exception | None = None
        self._waiting: asyncio.Future[None] | None = None  # the reader, while nothing is held

    def put(self, output: RequestOutput) -> None:
        """Add news."""
        if self._output is not None:
            self._output.add(output, aggregate=self._aggregate)
        elif not self._tapped(output):
            self._output = output
            self._wake()

    def put_text(self, index: int, text: str, token_ids: list[int]) -> bool:
        """Add news that are a delta of sequence `index`; False: they have to come by `put`."""
        tap, waiting = self._tap, self._waiting
        if (
            tap is None
            or (take_text := tap.take_text) is None
            or waiting is None
            or waiting.done()
            or self._output is not None
        ):
            return False
        try:
            return take_text(index, text, token_ids)
        # One reader's error must not reach the others.
        except Exception as error:
            self.fail(error)
            return True

    def fail(self, error: Exception) -> None:
        """End the stream: the reader gets what is held, then this error."""
        self._error = error
        self._wake()

    def get_nowait(self) -> RequestOutput | None:
        """What there is; raises the error once nothing is held."""
        output, self._output = self._output, None
        if output is None and self._error is not None:
            raise self._error
        return output

    async def get(self) -> RequestOutput:
        """Wait for news."""
        while (output := self.get_nowait()) is None:
            # A bare future: an Event costs twice as much, and this runs once per token.
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        return output

    def _tapped(self, output: RequestOutput) -> bool:
        tap, waiting = self._tap, self._waiting
        if tap is None or tap.take is None or waiting is None or waiting.done() or output.finished:
            return False
        try:
            return tap.take(output)
        # One reader's error must not reach the others.
        except Exception as error:
            self.fail(error)
            return True

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
