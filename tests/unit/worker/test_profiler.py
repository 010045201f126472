"""Torch's trace -> ours, for events as a GPU leaves them."""

import json
import time

import torch

from octavo.utils.chrome_trace import ChromeTrace
from octavo.worker.profiler import WorkerProfiler

BASE = time.time_ns() // 1000 * 1000
RECORDS = [
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 1, "tid": 9, "ts": 1.5,
     "dur": 2.0, "args": {"External id": 3, "cbid": 5, "correlation": 42}},
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10.25, "dur": 3.5,
     "args": {"correlation": 42, "stream": 7, "grid": [132, 1, 1], "device": 0}},
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH", "pid": 0, "tid": 13, "ts": 14.0,
     "dur": 0.5, "args": {"correlation": 43, "stream": 13, "bytes": 1024}},
    {"ph": "X", "cat": "overhead", "name": "Activity Buffer Request", "pid": -1, "tid": 0,
     "ts": 0, "dur": 1},
    {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 42, "pid": 1, "tid": 9, "ts": 1.5},
]  # fmt: skip


class FakeProfile:
    def stop(self):
        pass

    def export_chrome_trace(self, path):
        with open(path, "w") as file:
            json.dump({"baseTimeNanoseconds": BASE, "traceEvents": RECORDS}, file)


class FakeRunner:
    def watch(self, spans):
        spans.watch(self, "run", "forward")

    def run(self):
        pass


def test_events_of_a_gpu(tmp_path, monkeypatch):
    runner = FakeRunner()
    profiler = WorkerProfiler(runner, torch.device("cpu"), rank=3)
    profiler._profile.stop()
    monkeypatch.setattr(profiler, "_profile", FakeProfile())
    monkeypatch.setattr(profiler, "_on_cpu", False)
    runner.run()
    profiler.stop(tmp_path / "trace")
    span, call, kernel, copy = ChromeTrace.load(tmp_path / "trace").events
    assert (span.process, span.track, span.name) == ("worker 3", "step parts", "forward")
    assert (call.process, call.category) == ("worker 3", "cuda_runtime")
    assert call.args == {"correlation": 42}
    assert (kernel.process, kernel.track, kernel.name) == ("device 3", "stream 7", "gemm")
    assert (kernel.begin, kernel.end) == (BASE + 10_250, BASE + 13_750)
    assert kernel.args == {"correlation": 42, "grid": [132, 1, 1]}
    assert (copy.track, copy.args["bytes"]) == ("stream 13", 1024)
