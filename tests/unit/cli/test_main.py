"""The command: dispatch, exit codes, and the last line of standard error."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml

import octavo
from octavo.cli import main as cli
from octavo.cli.main import COMMANDS, SUMMARIES, main
from octavo.types.errors import EngineDeadError

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "dtype": "float32",
}


@pytest.fixture
def model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    return str(tmp_path)


def last_error(capsys):
    return capsys.readouterr().err.strip().splitlines()[-1]


def test_help_lists_every_command(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for name, summary in SUMMARIES.items():
        assert f"  {name}" in text
        assert summary in text
    assert set(SUMMARIES) == set(COMMANDS.names())


def test_no_command_is_wrong_usage(capsys):
    assert main([]) == 2
    assert "usage: octavo COMMAND" in capsys.readouterr().out


def test_an_unknown_command_gets_a_guess(capsys):
    assert main(["srve"]) == 2
    assert last_error(capsys) == "octavo: error: unknown command 'srve'; did you mean serve?"


@pytest.mark.parametrize("word", ["version", "--version", "-V"])
def test_version(word, capsys):
    assert main([word]) == 0
    assert f"octavo {octavo.__version__}" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        main([word, "--help"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("usage: octavo version")


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["serve", "--prt", "1"], 2, "octavo serve: error: unknown flag --prt; did you mean"),
        (["serve", "--dtype", "int4"], 2, "octavo serve: error: dtype='int4': expected one of"),
        (["plan", "--block-size", "24"], 2, "octavo plan: error: block_size=24"),
        (["config", "-tp", "2"], 2, "octavo config: error: --tensor-parallel-size above 1 is"),
        (["config", "--format", "xml"], 2, "octavo config: error: --format: invalid choice"),
        (["config", "/no/such/model"], 1, "octavo config: error: the model '/no/such/model'"),
        (["version", "x"], 2, "octavo version: error: unexpected argument 'x'"),
        (["bench"], 2, "octavo bench: error: which benchmark?"),
        (["bench", "latncy"], 2, "octavo bench: error: unknown benchmark 'latncy'; did you mean"),
    ],
)
def test_errors_are_one_line_with_cause_and_remedy(words, code, line, capsys):
    assert main(words) == code
    captured = capsys.readouterr()
    assert captured.err.strip().splitlines()[-1].startswith(line)
    assert "Traceback" not in captured.err
    assert captured.out == ""


class Failing:
    """Stands in for the table of commands; its one command raises."""

    def __init__(self, error):
        self.error = error

    def get(self, name):
        def command(words):
            raise self.error

        return command

    def __contains__(self, name):
        return True


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (EngineDeadError("it died\nof a fault"), 1, "octavo x: error: it died of a fault"),
        (RuntimeError("boom"), 1, "octavo x: error: RuntimeError: boom (OCTAVO_LOGGING_LEVEL"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 1, ""),
    ],
)
def test_failures(error, code, line, capsys, monkeypatch):
    monkeypatch.setattr(cli, "COMMANDS", Failing(error))
    monkeypatch.delenv("OCTAVO_LOGGING_LEVEL", raising=False)
    assert main(["x"]) == code
    assert capsys.readouterr().err.startswith(line)


def test_debug_shows_where(capsys, monkeypatch):
    monkeypatch.setattr(cli, "COMMANDS", Failing(RuntimeError("boom")))
    monkeypatch.setenv("OCTAVO_LOGGING_LEVEL", "DEBUG")
    assert main(["x"]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[0].startswith("Traceback")
    assert "RuntimeError: boom" in lines[-1]


def test_config_prints_json_and_yaml(model, capsys):
    words = ["config", model, "--load-format", "dummy", "--device", "cpu", "--port", "9000"]
    assert main(words) == 0
    as_json = json.loads(capsys.readouterr().out)
    assert as_json["server"]["port"] == 9000
    assert as_json["scheduler"]["max_num_batched_tokens"] == 2048
    assert main([*words, "--format", "yaml"]) == 0
    as_yaml = yaml.safe_load(capsys.readouterr().out)
    for values in (as_json, as_yaml):
        del values["device"]["free_memory"]
    assert as_yaml == as_json
    assert main([*words, "--usage", "llm"]) == 0
    offline = json.loads(capsys.readouterr().out)
    assert offline["scheduler"]["max_num_batched_tokens"] == 4096


def test_config_prints_the_table_of_features(capsys):
    assert main(["config", "--compat"]) == 0
    assert capsys.readouterr().out.startswith("Refused:")
    assert main(["config", "--compat", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("| | feature |")


def test_plan_prints_the_bytes(model, capsys):
    words = ["plan", model, "--load-format", "dummy", "--device", "cpu", "--max-num-seqs", "4"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "KV cache" in text
    assert "headroom" in text
    assert main([*words, "--format", "json"]) == 0
    dump = json.loads(capsys.readouterr().out)
    assert dump["bytes_per_token"] == 2 * 2 * 2 * 16 * 4
    assert dump["bytes"]["weights: token embedding"] == 256 * 64 * 4


def test_plan_works_without_the_weights(model, capsys):
    assert main(["plan", model, "--device", "cpu"]) == 0
    assert "from the architecture" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["serve", "plan", "config"])
def test_each_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert "--max-model-len" in capsys.readouterr().out


def test_serve_hands_over_what_was_asked_for(model, monkeypatch):
    taken = []
    registry = (
        sys.modules["octavo.cli.serve"].SERVERS if "octavo.cli.serve" in sys.modules else None
    )
    registry = registry or __import__("octavo.cli.serve", fromlist=["SERVERS"]).SERVERS
    monkeypatch.setattr(registry, "get", lambda name: lambda *args: taken.append(args))
    assert main(["serve", model, "--port", "1", "--max-model-len", "64"]) == 0
    ((engine_args, server_args),) = taken
    assert (engine_args.model, engine_args.max_model_len, server_args.port) == (model, 64, 1)


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import octavo.cli.main", ["torch", "numpy", "yaml", "msgspec", "argparse"]),
        ("import octavo.cli.serve, octavo.cli.plan, octavo.cli.config", ["torch", "transformers"]),
    ],
)
def test_commands_start_light(statement, forbidden):
    program = f"import sys\n{statement}\nprint([m for m in {forbidden} if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=True,
        text=True,
    )
    assert found.stdout.strip() == "[]"
