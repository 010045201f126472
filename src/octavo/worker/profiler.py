"""WorkerProfiler: what a worker's device and host do in its steps, recorded by torch's profiler."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from octavo.utils.chrome_trace import ChromeTrace, Event, read_json
from octavo.utils.profiling import HostSpans
from octavo.worker.parts import Runner

# Categories of torch's trace -> the track they are shown on; device events go by stream instead.
_HOST_TRACKS = {"cpu_op": "operators", "cuda_runtime": "CUDA calls", "cuda_driver": "CUDA calls"}
_DEVICE_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_KEPT_ARGS = ("correlation", "grid", "block", "registers per thread", "bytes")

# Parts of a step that are the device's work where the device is the CPU.
_COMPUTING = frozenset({"forward", "sample"})


class WorkerProfiler:
    """Records between construction and `stop`, both in the thread that runs the steps.

    On a GPU only the device and the calls of its driver are recorded: recording every operator
    would slow the host down by what is to be measured. On a CPU the forward pass and its
    operators, so far as they are torch's, stand on the device's track.
    """

    def __init__(self, runner: Runner, device: torch.device, rank: int) -> None:
        self._spans = HostSpans()
        self._worker, self._device = f"worker {rank}", f"device {rank}"
        self._on_cpu = device.type == "cpu"
        runner.watch(self._spans)
        activity = ProfilerActivity.CPU if self._on_cpu else ProfilerActivity.CUDA
        self._profile = profile(activities=[activity], acc_events=True)
        self._profile.start()

    def stop(self, path: Path) -> None:
        """Wait for the device, then write what was recorded as a ChromeTrace file."""
        spans = self._spans.stop()
        self._profile.stop()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._profile.export_chrome_trace(str(path))
        trace = ChromeTrace()
        for span in spans:
            if self._on_cpu and span.name in _COMPUTING:
                trace.events.append(Event(self._device, "forward", "cpu_op", *span))
            else:
                trace.events.append(Event(self._worker, "step parts", "host", *span))
        content = read_json(path)
        base = int(content.get("baseTimeNanoseconds", 0))
        thread = threading.get_native_id()
        for record in content["traceEvents"]:
            place = self._place(record, thread)
            if place is not None:
                trace.events.append(_event(record, base, *place))
        trace.save(path)

    def _place(self, record: dict[str, Any], thread: int) -> tuple[str, str] | None:
        """(process, track) of an event of torch's trace; None for those that say nothing."""
        category = record.get("cat")
        if record.get("ph") != "X" or not isinstance(category, str):
            return None
        if category in _DEVICE_CATEGORIES:
            return self._device, f"stream {record['args'].get('stream', 0)}"
        if category not in _HOST_TRACKS:
            return None
        if self._on_cpu and record["tid"] == thread:
            return self._device, "forward"
        return self._worker, f"{_HOST_TRACKS[category]}, thread {record['tid']}"


def _event(record: dict[str, Any], base: int, process: str, track: str) -> Event:
    args = record.get("args", {})
    begin = base + round(record["ts"] * 1e3)
    return Event(
        process,
        track,
        record["cat"],
        str(record["name"]),
        begin,
        begin + round(record["dur"] * 1e3),
        {name: args[name] for name in _KEPT_ARGS if name in args},
    )
