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
        self._ready = asyncio.Event()

    def put(self, output: RequestOutput) -> None:
        """Add news."""
        if self._output is None:
            self._output = output
            self._ready.set()
        else:
            self._output.add(output, aggregate=self._aggregate)

    def fail(self, error: Exception) -> None:
        """End the stream: the reader gets what is held, then this error."""
        self._error = error
        self._ready.set()

    def get_nowait(self) -> RequestOutput | None:
        """What there is; raises the error once nothing is held."""
        output, self._output = self._output, None
        if output is None and self._error is not None:
            raise self._error
        if self._error is None:
            self._ready.clear()
        return output

    async def get(self) -> RequestOutput:
        """Wait for news."""
        while (output := self.get_nowait()) is None:
            await self._ready.wait()
        return output
