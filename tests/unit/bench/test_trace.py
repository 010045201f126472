"""Traces of a real engine, in this process and through the command."""

import json
import subprocess
import sys

import pytest

from octavo.bench import trace
from octavo.bench.trace import TraceOptions, record
from octavo.bench.trace_steps import sort_into_steps
from octavo.bench.trace_tables import step_figures
from octavo.config.engine_args import EngineArgs
from octavo.engine.llm_engine import LLMEngine
from octavo.types.errors import ConfigError, OctavoError
from octavo.utils.chrome_trace import ChromeTrace
from support.tiny import tiny_folder


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "0")
    args = EngineArgs(
        model=tiny_folder(), load_format="dummy", max_num_seqs=8, max_model_len=400, device="cpu"
    )
    made = LLMEngine.from_engine_args(args)
    yield made
    made.shutdown()


def traced(engine, tmp_path, **values):
    options = TraceOptions(output_dir=str(tmp_path), **values)
    path, _ = record(engine, options)
    return ChromeTrace.load(path).events


def test_decode_steps(engine, tmp_path):
    events = traced(engine, tmp_path, batch=3, input_len=20, num_steps=10)
    steps = sort_into_steps(events)
    assert len(steps) >= 10
    assert {(s.kind, s.rows, s.tokens) for s in steps} == {("decode", 3, 3)}
    figures = step_figures(steps, "decode")
    assert 0 < figures.host_share < 1
    # Host, device and front end are on one clock: a step's work lies inside its launch.
    for s in steps:
        begin, end = s.computing
        launch = s.spans["launch"]
        assert launch.begin <= begin < end <= launch.end
    shown = {(event.process, event.track) for event in events}
    assert shown >= {
        ("front end", "outputs"), ("engine core", "steps"),
        ("worker 0", "step parts"), ("device 0", "forward"),
    }  # fmt: skip
    assert not engine.has_unfinished_requests()
    assert list(tmp_path.iterdir()) == list(tmp_path.glob("trace-*.json.gz"))


def test_prefill_steps(engine, tmp_path):
    steps = sort_into_steps(traced(engine, tmp_path, case="prefill", batch=2, input_len=30))
    assert {s.kind for s in steps} == {"prefill"}
    assert sum(s.tokens for s in steps) == 3 * 2 * 30


def test_mixed_steps(engine, tmp_path):
    values = {"case": "mixed", "batch": 2, "input_len": 10, "arriving_len": 25, "num_steps": 12}
    steps = sort_into_steps(traced(engine, tmp_path, **values))
    assert {s.kind for s in steps} == {"decode", "mixed"}
    assert {s.tokens for s in steps if s.kind == "mixed"} == {2 + 25}


def test_after_a_trace_nothing_is_watched(engine, tmp_path):
    traced(engine, tmp_path, num_steps=2)
    core = engine._client._core
    assert "schedule" not in vars(core._scheduler)
    assert "execute_model" not in vars(core._executor)
    assert "process" not in vars(engine._outputs)


def test_one_trace_at_a_time(engine, tmp_path):
    engine.start_profile()
    with pytest.raises(OctavoError, match="already"):
        engine.start_profile()
    engine.stop_profile(str(tmp_path))
    with pytest.raises(OctavoError, match="start one first"):
        engine.stop_profile(str(tmp_path))


@pytest.mark.parametrize(
    ("values", "match"), [({"batch": 9}, "max_num_seqs=8"), ({"input_len": 200}, "max_model_len")]
)
def test_what_the_engine_is_too_small_for(engine, tmp_path, values, match):
    with pytest.raises(ConfigError, match=match):
        record(engine, TraceOptions(**values))


def test_a_trace_without_steps(tmp_path, monkeypatch):
    monkeypatch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "0")
    monkeypatch.setattr(trace, "sort_into_steps", lambda events: [])
    words = [tiny_folder(), "--load-format", "dummy", "--num-steps", "1", "--device", "cpu"]
    with pytest.raises(OctavoError, match="no complete step"):
        trace.main([*words, "--max-model-len", "400", "--output-dir", str(tmp_path)])


def test_the_command(tmp_path):
    words = ["-m", "octavo.cli.main", "bench", "trace", tiny_folder(), "--load-format", "dummy"]
    words += ["--device", "cpu", "--max-model-len", "400", "--batch", "2", "--num-steps", "5"]
    words += ["--output-dir", str(tmp_path), "--output-json", str(tmp_path / "figures.json")]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "device idle between steps" in done.stdout
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["steps"]["decode"]["rows"] == 2
    assert figures["kernels"]["decode"][0]["name"]
