"""GrammarCheck: whether a grammar can be served, found out off the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from octavo.config.octavo_config import OctavoConfig
from octavo.structured_output.trial import GrammarTrials
from octavo.types.sampling_params import StructuredOutputsParams

_NUM_CHILDREN = 2
_NUM_THREADS = 8  # they wait for children


class GrammarCheck:
    """Tries grammars in child processes, which exist from the first grammar on."""

    def __init__(self, config: OctavoConfig) -> None:
        options = config.structured_outputs
        self._trials = GrammarTrials(
            options.backend, options.grammar_compile_timeout, _NUM_CHILDREN
        )
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="octavo-grammar-check")

    async def check(self, spec: StructuredOutputsParams) -> None:
        """Raise GrammarError for a grammar that can't be served, QueueFullError if too many wait.

        The error's `param` is a field of `structured_outputs`.
        """
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads, self._trials.check, spec)

    def shutdown(self) -> None:
        """End the children."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._trials.close()
