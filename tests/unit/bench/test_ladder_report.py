"""Lines of a ladder: shares, gains, the table and the file."""

import json

import pytest

from octavo.bench.ladder_report import make_lines, print_table, read_compared, to_json
from octavo.bench.ladder_run import Measured
from octavo.bench.rungs import parse_rungs
from octavo.types.errors import ConfigError

RUNGS = parse_rungs(["decode:1x8/8", "batch:2x8/8", "start:warm"])
RESULTS = [
    {
        "decode:1x8/8": Measured({"time per token": [4.0, 5.0, 3.0]}, {"sm_mhz_median": 1980}),
        "batch:2x8/8": Measured({"output": [50.0]}),
    },
    {"decode:1x8/8": Measured({"time per token": [6.0, 6.0]})},
]
FLOORS = {"decode:1x8/8": {"time per token": 2.0}, "batch:2x8/8": {"output": 100.0}}


@pytest.fixture
def lines():
    return make_lines(RUNGS, RESULTS, FLOORS, {("batch:2x8/8", "output"): 40.0})


def test_shares_and_gains(lines):
    decode, batch = lines  # nothing was measured of the start
    assert decode.share == 0.5
    assert decode.gain(6.0) == 1.5
    assert decode.medians() == [4.0, 6.0]
    assert batch.share == 0.5
    assert batch.gain(batch.other) == 1.25
    assert batch.medians() == [50.0, None]


def test_the_table(lines, capsys):
    print_table(lines, ["octavo", "peer"], "old/before.json")
    head, decode, batch = capsys.readouterr().out.splitlines()
    assert "before.json" in head
    assert "4.000 (3.000-5.000, 3)" in decode
    assert "1.50x" in decode
    assert "1.25x" in batch
    assert " - " in batch


def test_a_file_can_be_compared_with(lines, tmp_path):
    path = tmp_path / "ladder.json"
    path.write_text(json.dumps({"ladder": to_json(lines, RESULTS)}))
    assert read_compared(str(path)) == {
        ("decode:1x8/8", "time per token"): 4.0, ("batch:2x8/8", "output"): 50.0
    }  # fmt: skip
    entry = json.loads(path.read_text())["ladder"][0]
    assert entry["sides"][0]["clocks"] == {"sm_mhz_median": 1980}
    assert entry["share_of_floor"] == 0.5


@pytest.mark.parametrize("content", [None, "x", "{}", '{"ladder": [{}]}', '{"ladder": 3}'])
def test_files_that_are_no_ladder(tmp_path, content):
    path = tmp_path / "other.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match="compare="):
        read_compared(str(path))
