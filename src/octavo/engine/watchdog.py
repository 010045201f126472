"""StallWatchdog: a thread of the core that notices a step which does not end."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable

from octavo.engine.serial import Heartbeat
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

MAX_INTERVAL = 5.0  # seconds between two looks


class StallWatchdog:
    """Watches one stepping thread and sends a Heartbeat at each look while a step runs.

    A step older than `limit` seconds is reported once as stalled, with every thread's stack in
    the log; when it ends after all, that is sent too.
    """

    def __init__(self, limit: float, send: Callable[[Heartbeat], None]) -> None:
        self._limit = limit
        self._send = send
        self._interval = min(MAX_INTERVAL, limit / 4)
        self._num_steps = 0
        self._began: float | None = None
        self._stalled_step: int | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="octavo-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()

    def begin_step(self) -> None:
        """The stepping thread starts a step."""
        self._num_steps += 1
        self._began = time.monotonic()

    def end_step(self) -> None:
        """The stepping thread has ended its step."""
        self._began = None

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self._look()

    def _look(self) -> None:
        # The stepping thread writes both without a lock; a torn pair is off by one look only.
        began, step = self._began, self._num_steps
        age = 0.0 if began is None else time.monotonic() - began
        stalled = age > self._limit
        if stalled and self._stalled_step != step:
            self._stalled_step = step
            logger.error(
                "step %d has run for %.0f s, longer than OCTAVO_STALL_TIMEOUT_S=%g; "
                "health checks fail until it ends. Stacks:\n%s",
                step,
                age,
                self._limit,
                _all_stacks(),
            )
        recovered = not stalled and self._stalled_step is not None
        if recovered:
            logger.warning("the stalled step %d has ended", self._stalled_step)
            self._stalled_step = None
        if began is not None or recovered:
            self._send(Heartbeat(num_steps=step, step_seconds=age, stalled=stalled))


def _all_stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"Thread {names.get(ident, ident)}:\n" + "".join(traceback.format_stack(frame))
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident()
    )
