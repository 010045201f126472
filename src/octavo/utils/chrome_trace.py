"""ChromeTrace: events for chrome://tracing and ui.perfetto.dev, written and read as one file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.utils.profiling import Span


@dataclass(frozen=True, slots=True)
class Event:
    """A stretch of time on a track, in nanoseconds since 1970."""

    process: str
    track: str
    category: str
    name: str
    begin: int
    end: int
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def duration(self) -> int:
        """Nanoseconds."""
        return self.end - self.begin


class ChromeTrace:
    """Events on named tracks of named processes, shown in the order they were first named.

    Format: the "Trace Event Format" of Chromium, complete events ("ph": "X"), microseconds.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events = list(events)

    def add_spans(self, process: str, track: str, spans: Iterable[Span]) -> None:
        """Host spans as events of category "host"."""
        self.events.extend(Event(process, track, "host", *span) for span in spans)

    def save(self, path: Path) -> None:
        """Write the file, compressed if its name ends in .gz."""
        base = min((event.begin for event in self.events), default=0)
        ids = self._track_ids()
        records = [_record(event, ids[event.process, event.track], base) for event in self.events]
        content = {
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": base,
            "traceEvents": [*_names(ids), *records],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content, separators=(",", ":")).encode()
        path.write_bytes(gzip.compress(text, 5) if path.suffix == ".gz" else text)

    @classmethod
    def load(cls, path: Path) -> ChromeTrace:
        """Read a file that `save` wrote."""
        content = read_json(path)
        processes: dict[int, str] = {}
        tracks: dict[tuple[int, int], str] = {}
        events = []
        for record in content["traceEvents"]:
            if record["name"] == "process_name":
                processes[record["pid"]] = record["args"]["name"]
            elif record["name"] == "thread_name":
                tracks[record["pid"], record["tid"]] = record["args"]["name"]
            elif record["ph"] == "X":
                begin = content["baseTimeNanoseconds"] + round(record["ts"] * 1e3)
                event = Event(
                    processes[record["pid"]],
                    tracks[record["pid"], record["tid"]],
                    record["cat"],
                    record["name"],
                    begin,
                    begin + round(record["dur"] * 1e3),
                    record.get("args", {}),
                )
                events.append(event)
        return cls(events)

    def _track_ids(self) -> dict[tuple[str, str], tuple[int, int]]:
        """(process, track) -> (pid, tid)."""
        processes: dict[str, int] = {}
        tracks: dict[tuple[str, str], tuple[int, int]] = {}
        for event in self.events:
            pid = processes.setdefault(event.process, len(processes) + 1)
            tracks.setdefault((event.process, event.track), (pid, len(tracks) + 1))
        return tracks


def _names(ids: dict[tuple[str, str], tuple[int, int]]) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for (process, track), (pid, tid) in ids.items():
        for kind, name in (("process", process), ("thread", track)):
            records += [
                _metadata(pid, tid, f"{kind}_name", "name", name),
                _metadata(pid, tid, f"{kind}_sort_index", "sort_index", tid),
            ]
    return records


def _record(event: Event, ids: tuple[int, int], base: int) -> dict[str, Any]:
    record: dict[str, Any] = {
        "ph": "X",
        "pid": ids[0],
        "tid": ids[1],
        "cat": event.category,
        "name": event.name,
        "ts": (event.begin - base) / 1e3,
        "dur": event.duration / 1e3,
    }
    if event.args:
        record["args"] = event.args
    return record


def _metadata(pid: int, tid: int, kind: str, name: str, value: str | int) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {name: value}}


def read_json(path: Path) -> Any:
    """The content of a JSON file, compressed or not."""
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
