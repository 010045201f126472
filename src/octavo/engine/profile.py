"""CoreProfiler: a trace of an engine's steps, from the scheduler's work to the device's kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from octavo.executor.interface import Executor
from octavo.types.errors import OctavoError
from octavo.types.scheduler_output import SchedulerOutput
from octavo.utils.chrome_trace import ChromeTrace
from octavo.utils.logging import get_logger
from octavo.utils.profiling import HostSpans, Span

logger = get_logger(__name__)

CORE_PROCESS, CORE_TRACK = "engine core", "steps"
FRONT_PROCESS, FRONT_TRACK = "front end", "outputs"


class CoreProfiler:
    """Starts and stops the recording of everything that takes part in a step.

    `watch` has the core's own parts of a step recorded in the spans it is given. Between `stop`
    and `start` nothing of this exists in a step.
    """

    def __init__(self, executor: Executor, watch: Callable[[HostSpans], None]) -> None:
        self._executor = executor
        self._watch = watch
        self._spans: HostSpans | None = None

    def start(self) -> None:
        """Record from the next step on. Raises OctavoError if that is being done already."""
        if self._spans is not None:
            raise OctavoError("a trace is being recorded already; stop it first")
        self._executor.collective_rpc("start_profile")
        self._spans = HostSpans()
        self._watch(self._spans)

    def stop(self, folder: str, front_end: Sequence[Sequence[Any]] = ()) -> str:
        """End the recording; returns the path of its ChromeTrace file, made in `folder`.

        `front_end`: spans that a front end recorded meanwhile. Takes seconds. Raises OctavoError
        if nothing was being recorded.
        """
        if self._spans is None:
            raise OctavoError("no trace is being recorded; start one first")
        spans, self._spans = self._spans.stop(), None
        path = Path(folder).absolute() / time.strftime("trace-%Y%m%d-%H%M%S.json.gz")
        trace = ChromeTrace()
        trace.add_spans(FRONT_PROCESS, FRONT_TRACK, (Span(*span) for span in front_end))
        trace.add_spans(CORE_PROCESS, CORE_TRACK, spans)
        parts = self._executor.collective_rpc("stop_profile", (str(path.with_suffix("")),))
        for part in map(Path, parts):
            trace.events.extend(ChromeTrace.load(part).events)
            part.unlink()
        trace.save(path)
        logger.info("a trace of the engine is in %s; ui.perfetto.dev shows it", path)
        return str(path)


def describe_schedule(args: Sequence[Any], step: SchedulerOutput) -> dict[str, Any]:
    """What a trace says about a scheduled step."""
    return {
        "step": step.step_id,
        "rows": len(step.slots),
        "decode_rows": step.num_decode_rows,
        "tokens": step.total_num_scheduled_tokens,
    }


def describe_step_argument(args: Sequence[Any], result: Any) -> dict[str, Any]:
    """What a trace says about a call that takes the step first."""
    step: SchedulerOutput = args[0]
    return {"step": step.step_id}
