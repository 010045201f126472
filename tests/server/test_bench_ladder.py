"""`octavo bench ladder` on a tiny model: real engines and a real server, in processes."""

import json

from octavo.bench.ladder import main
from support.tiny import tiny_folder

RUNGS = (
    "decode:2x8/4 batch:3x4-8/2-4 prefill:1x9 prefill:3x5 prefix:32+2x4/2 serve:2x8/4 start:cold"
)


def test_every_kind_of_rung(tmp_path, capsys):
    path = tmp_path / "ladder.json"
    words = [tiny_folder(), "--load-format", "dummy", "--device", "cpu", "--max-model-len", "256"]
    words += ["--repetitions", "1", "--num-warmups", "0"]
    words += ["--bandwidth-gbs", "20", "--rate-tflops", "0.1", "--output-json", str(path)]
    assert main([*words, "--rungs", *RUNGS.split()]) == 0
    result = json.loads(path.read_text())
    figures = {(line["rung"], line["figure"]): line for line in result["ladder"]}
    assert {rung for rung, _ in figures} == set(RUNGS.split())
    assert ("serve:2x8/4", "TTFT mean") in figures
    assert ("prefill:3x5", "input") in figures
    for line in figures.values():
        (side,) = line["sides"]
        assert len(side["values"]) == 1
        assert line["floor"] is None or isinstance(line["share_of_floor"], float)
    assert result["engines"][0]["options"]["max_model_len"] == "256"
    assert result["engines"][0]["version"] == result["machine"]["octavo"]
    assert "torch" in result["machine"]
    # Compared with itself, nothing was gained.
    again = str(tmp_path / "again.json")
    words = [*words[:-1], again, "--rungs", "prefill:1x9", "--compare", str(path)]
    capsys.readouterr()
    assert main(words) == 0
    assert "ladder.json" in capsys.readouterr().out
