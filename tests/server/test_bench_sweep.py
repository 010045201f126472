"""`octavo bench sweep` over a real HTTP server, which stands in for every setting's own."""

import contextlib
import json

import pytest

from octavo.bench import sweep
from octavo.types.errors import ConfigError, OctavoError

WORDS = "some-model --vary max_num_seqs=4,8 --concurrencies 1 3 --min-prompts 4 --rounds 1"
WORDS += " --load.input-len 6 --load.output-len 3 --max-model-len 64"


@pytest.fixture
def starts(server, monkeypatch):
    """The commands of the servers that were started."""
    commands = []

    @contextlib.contextmanager
    def start(command):
        commands.append(" ".join(command))
        if "--max-num-seqs 8" in commands[-1] and len(commands) == 3:
            raise OctavoError("no memory")
        yield server

    monkeypatch.setattr(sweep, "ServerProcess", start)
    return commands


def test_a_sweep_goes_on_where_it_was_interrupted(starts, tmp_path, capsys):
    words = [*WORDS.split(), "--folder", str(tmp_path / "s"), "--plot", str(tmp_path / "p.html")]
    # The third setting's server does not start.
    assert sweep.main(words) == 1
    assert "max_num_seqs=8: no memory" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "s" / "sweep.json").read_text())["points"]) == 4
    # The next time nothing else is measured again.
    assert sweep.main(words) == 0
    assert len(starts) == 4
    assert "--max-model-len 64" in starts[3]
    assert "--max-num-seqs 8" in starts[3]
    assert "--max-num-seqs" not in starts[0]
    result = json.loads((tmp_path / "s" / "sweep.json").read_text())
    assert len(result["points"]) == 6
    assert all(p["figures"]["output_throughput"] > 0 for p in result["points"])
    assert result["machine"]["octavo"]
    assert "max_num_seqs=8" in (tmp_path / "s" / "sweep.html").read_text()
    assert (tmp_path / "p.html").exists()
    assert len((tmp_path / "s" / "sweep.csv").read_text().splitlines()) == 7
    assert sweep.main(words) == 0
    assert len(starts) == 4


def test_rates_and_repetitions(starts, tmp_path):
    words = "m --request-rates 200 --load-seconds 0.1 --repetitions 3 --min-prompts 5"
    words += f" --load.input-len 6 --load.output-len 2 --folder {tmp_path}"
    assert sweep.main(words.split()) == 0
    (point,) = json.loads((tmp_path / "sweep.json").read_text())["points"]
    assert point["figures"]["completed"] == 20
    assert point["load"] == {"kind": "rate", "amount": 200.0}
    assert len(point["repetitions"]) == 3
    assert len(starts) == 3
    # One more walk is made of what is there and a walk.
    assert sweep.main([*words.split(), "--repetitions", "4"]) == 0
    assert len(starts) == 4


def test_requests_that_fail_make_no_point(starts, tmp_path, capsys):
    words = f"m --concurrencies 1 --min-prompts 2 --rounds 1 --folder {tmp_path}"
    words += " --load.input-len 6"
    assert sweep.main([*words.split(), "--load.extra-body", '{"temperature": 9}']) == 1
    assert "2 requests failed under 1 stream" in capsys.readouterr().out
    assert not list((tmp_path / "points").iterdir())


@pytest.mark.parametrize(
    "words",
    ["--vary x=1", "--load.num-prompts 5", "--load.input-length 5", "--load.input-len x",
     "--plot a.svg", "--concurrencies 0", "--load.dataset-name custom"],
)  # fmt: skip
def test_wrong_words(starts, tmp_path, words):
    with pytest.raises(ConfigError):
        sweep.main(["m", "--folder", str(tmp_path), *words.split()])
    assert not starts
