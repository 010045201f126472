"""Workers: a few threads for what would hold the event loop up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_NUM_THREADS = 2  # what lets go of the interpreter lock is rare, so more would not help


class Workers:
    """Runs functions in threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="octavo-http")

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises; it should take a millisecond or more."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def shutdown(self) -> None:
        """Let the threads go; what waits in the queue is dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)
