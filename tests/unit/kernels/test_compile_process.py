"""The compiling process as the engine sees it: its events, its silence, its end."""

import signal
import threading

import pytest

from octavo.kernels import compile_process
from octavo.kernels.compile_manifest import ManifestEntry
from octavo.kernels.compile_process import Compiled, CompileProcess, StartReady

SCRIPT = """
import json, os, sys
size = int.from_bytes(sys.stdin.buffer.read(8), "little")
config = sys.stdin.buffer.read(size).decode()
assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
name = config + os.environ["OCTAVO_KERNEL_CACHE"]
compiled = {"type": "Compiled", "kernel": ["m", name, "{}", "e"], "seconds": 0.5}
ready = {"type": "StartReady", "num_kernels": 1, "num_failed": 0, "seconds": 0.6}
print(json.dumps(compiled), json.dumps(ready), sep="\\n", flush=True)
sys.stdin.buffer.read()
"""


@pytest.fixture
def script(monkeypatch, tmp_path):
    def use(text):
        (tmp_path / "played_compiler.py").write_text(text)
        monkeypatch.setattr(compile_process, "SERVER_MODULE", "played_compiler")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delenv("OCTAVO_KERNEL_CACHE", raising=False)

    return use


def test_events_until_the_start_is_ready(script, tmp_path):
    script(SCRIPT)
    process = CompileProcess(b"config", tmp_path / "cache")
    events = process.events()
    name = f"config{tmp_path / 'cache'}"
    assert next(events) == Compiled(ManifestEntry("m", name, "{}", "e"), 0.5)
    assert next(events) == StartReady(1, 0, 0.6)
    process.leave()
    process.close()
    process.close()
    assert process._process.returncode is not None


def test_a_process_that_fails_has_no_events(script):
    script("import sys; sys.exit(3)")
    process = CompileProcess(b"config" * 100_000)
    assert list(process.events()) == []
    process.close()


def test_one_that_says_nothing_can_be_ended(script):
    script("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)")
    process = CompileProcess(b"config")
    events = []
    reader = threading.Thread(target=lambda: events.extend(process.events()))
    reader.start()
    process.kill()
    reader.join(10)
    assert not reader.is_alive()
    assert events == []
    process.close()


def test_one_that_does_not_end_is_killed(script, monkeypatch):
    script("import time; time.sleep(60)")
    monkeypatch.setattr(compile_process, "STOP_AFTER", 0.2)
    process = CompileProcess(b"config")
    process.close()
    assert process._process.returncode == -signal.SIGKILL
