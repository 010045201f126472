"""`octavo bench serve` against a real HTTP server, the engine faked."""

import json

import pytest

from octavo.bench.serve import main
from octavo.types.errors import OctavoError

SHAPE = "--num-prompts 20 --random-input-len 10 --random-output-len 5"
COMMON = [*SHAPE.split(), "--disable-tqdm"]


@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_every_request_is_measured(server, tmp_path, capsys, backend):
    words = f"--backend {backend} --base-url {server.url} --num-client-processes 2".split()
    words += ["--num-warmups", "3"]
    words += f"--save-result --save-detailed --result-dir {tmp_path}".split()
    assert main([*COMMON, *words, "--result-filename", "r.json", "--goodput", "ttft:60000"]) == 0
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["completed"] == 20
    assert result["total_output_tokens"] == 100
    if backend == "openai":
        assert result["total_input_tokens"] == 200
    assert result["request_goodput"] == pytest.approx(result["request_throughput"])
    assert all(result[f"p99_{name}_ms"] >= 0 for name in ("ttft", "tpot", "itl", "e2el"))
    assert len(result["requests"]) == 20
    assert result["machine"]["octavo"]
    assert "time to first token" in capsys.readouterr().out


def test_concurrency_is_kept(server, tmp_path):
    words = f"--base-url {server.url} --max-concurrency 3 --num-client-processes 2".split()
    words += ["--save-result", "--result-dir", str(tmp_path), "--result-filename", "r.json"]
    assert main([*COMMON, *words]) == 0
    assert json.loads((tmp_path / "r.json").read_text())["max_concurrent_requests"] <= 3


def test_more_processes_than_streams(server, tmp_path):
    words = f"--base-url {server.url} --max-concurrency 1 --num-client-processes 3".split()
    words += ["--save-result", "--result-dir", str(tmp_path), "--result-filename", "r.json"]
    assert main([*COMMON, *words]) == 0
    assert json.loads((tmp_path / "r.json").read_text())["max_concurrent_requests"] == 1


def test_everything_that_can_be_asked_for(server, tmp_path, capsys):
    plots = [str(tmp_path / "a.html"), str(tmp_path / "b.HTML")]
    words = f"--base-url {server.url} --dataset-name prefix_repetition --ramp-up-strategy linear"
    words += " --ramp-up-start-rps 50 --ramp-up-end-rps 200 --prefix-repetition-prefix-len 8"
    words += " --prefix-repetition-suffix-len 4 --prefix-repetition-num-prefixes 2 --output-len 3"
    words += " --top-p 0.9 --header X-Test=1 --metadata note=x --save-result --label l"
    words += f" --result-dir {tmp_path} --result-filename r.json --plot"
    assert main([*COMMON, *words.split(), *plots]) == 0
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["total_input_tokens"] == 20 * 12
    assert result["total_output_tokens"] == 20 * 3
    assert (result["note"], result["label"]) == ("x", "l")
    assert "<svg" in (tmp_path / "a.html").read_text()
    assert (tmp_path / "b.HTML").exists()


def test_a_server_that_records_no_traces(server):
    with pytest.raises(OctavoError, match="profiler"):
        main([*COMMON, "--base-url", server.url, "--profile"])


def test_failed_requests_are_told(server, capsys):
    assert main([*COMMON, "--base-url", server.url, "--extra-body", '{"temperature": 9}']) == 1
    assert "temperature" in capsys.readouterr().out


def test_no_server_is_told_with_the_way_out():
    with pytest.raises(OctavoError, match="octavo serve"):
        main([*COMMON, "--port", "9"])
