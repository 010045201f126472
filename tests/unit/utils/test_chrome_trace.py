"""A trace is read as it was written, and is what viewers expect."""

import gzip
import json

import pytest

from octavo.utils.chrome_trace import ChromeTrace, Event
from octavo.utils.profiling import Span

NOW = 1_900_000_000_123_456_789  # nanoseconds do not fit a float
EVENTS = [
    Event("core", "steps", "host", "schedule", NOW, NOW + 1_500, {"step": 1}),
    Event("device", "stream 7", "kernel", "gemm", NOW + 2_001, NOW + 5_004),
    Event("device", "stream 8", "kernel", "gemm", NOW + 2_001, NOW + 2_001),
]


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_what_is_saved_is_loaded(tmp_path, name):
    ChromeTrace(EVENTS).save(tmp_path / "deep" / name)
    assert ChromeTrace.load(tmp_path / "deep" / name).events == EVENTS


def test_tracks_have_names_and_numbers_of_their_own(tmp_path):
    trace = ChromeTrace(EVENTS)
    trace.add_spans("core", "steps", [Span("update", NOW, NOW + 1, {})])
    trace.save(tmp_path / "t.json.gz")
    content = json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))
    names = {
        (record["pid"], record["tid"]): record["args"]["name"]
        for record in content["traceEvents"]
        if record["name"] == "thread_name"
    }
    assert list(names.values()) == ["steps", "stream 7", "stream 8"]
    shown = [record for record in content["traceEvents"] if record["ph"] == "X"]
    assert [(r["name"], names[r["pid"], r["tid"]], r["ts"], r["dur"]) for r in shown] == [
        ("schedule", "steps", 0.0, 1.5),
        ("gemm", "stream 7", 2.001, 3.003),
        ("gemm", "stream 8", 2.001, 0.0),
        ("update", "steps", 0.0, 0.001),
    ]


def test_an_empty_trace(tmp_path):
    ChromeTrace().save(tmp_path / "t.json")
    assert ChromeTrace.load(tmp_path / "t.json").events == []
