"""`octavo bench serve` against a real HTTP server, the engine faked."""

import json

import pytest

from octavo.bench.serve import main
from octavo.types.errors import OctavoError

SHAPE = "--num-prompts 20 --random-input-len 10 --random-output-len 5"
COMMON = [*SHAPE.split(), "--disable-tqdm"]


@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_every_request_is_measured(server, tmp_path, capsys, backend):
    words = f"--backend {backend} --base-url {server.url} --num-clients 2 --num-warmups 3".split()
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
    words = f"--base-url {server.url} --max-concurrency 3 --num-clients 2 --save-result".split()
    words += ["--result-dir", str(tmp_path), "--result-filename", "r.json"]
    assert main([*COMMON, *words]) == 0
    assert json.loads((tmp_path / "r.json").read_text())["max_concurrent_requests"] <= 3


def test_failed_requests_are_told(server, capsys):
    assert main([*COMMON, "--base-url", server.url, "--extra-body", '{"temperature": 9}']) == 1
    assert "temperature" in capsys.readouterr().out


def test_no_server_is_told_with_the_way_out():
    with pytest.raises(OctavoError, match="octavo serve"):
        main([*COMMON, "--port", "9"])
