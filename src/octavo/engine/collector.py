"""RequestOutputCollector: the mailbox between the output task and one stream's reader."""

from __future__ import annotations

import asyncio

from octavo.types.outputs import RequestOutput
from octavo.types.sampling_params import RequestOutputKind


class RequestOutputCollector:
    """Holds at most one output: what comes while the reader is away is merged into it.

    So a slow reader costs no memory beyond its own text, and gets fewer, larger outputs.
    """

    def __init__(self, kind: RequestOutputKind) -> None:
        self._aggregate = kind is RequestOutputKind.DELTA
        self._output: RequestOutput | None = None
        self._error: Exception | None = None
        self._waiting: asyncio.Future[None] | None = None  # the reader, while nothing is held

    def put(self, output: RequestOutput) -> None:
        """Add news."""
        if self._output is None:
            self._output = output
            self._wake()
        else:
            self._output.add(output, aggregate=self._aggregate)

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

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
