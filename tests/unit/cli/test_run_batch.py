"""`octavo run-batch`: its files, and a run with a made-up model."""

import json

import pytest

from octavo.cli.run_batch import main
from octavo.types.errors import ConfigError
from support.tiny import tiny_folder


def test_both_files_are_needed(tmp_path):
    for words in ([], ["-i", str(tmp_path / "in")], ["-o", str(tmp_path / "out")]):
        with pytest.raises(ConfigError, match="file is missing"):
            main([tiny_folder(), *words])


def test_a_file_is_answered(tmp_path):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [
        {"custom_id": f"r{n}", "url": "/v1/completions", "body": {"prompt": "a", "max_tokens": n}}
        for n in range(1, 4)
    ]
    lines.append({"custom_id": "bad", "url": "/v1/completions", "body": {"prompt": "a", "n": 0}})
    source.write_text("\n".join(map(json.dumps, lines)))
    flags = ["--load-format", "dummy", "--device", "cpu", "--max-num-seqs", "4"]
    assert main([tiny_folder(), *flags, "-i", str(source), "-o", str(target)]) == 1
    results = {r["custom_id"]: r["response"] for r in map(json.loads, target.open())}
    assert {name: r["status_code"] for name, r in results.items()} == {
        "r1": 200,
        "r2": 200,
        "r3": 200,
        "bad": 400,
    }
    assert results["r1"]["body"]["usage"]["completion_tokens"] == 1
