import json

import pytest

from octavo.cli import compile as command
from octavo.kernels.compile_manifest import ManifestEntry
from octavo.kernels.compile_process import AllReady, Compiled, StartReady
from octavo.types.errors import ConfigError

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 256,
}
KERNEL = ManifestEntry("octavo.kernels.norm", "_rms_norm_kernel", "{}", "ab12")


class FakeProcess:
    events_to_tell = (Compiled(KERNEL, 1.5), StartReady(1, 0, 2.0), AllReady(1, 0, 3.0, []))
    started = None

    def __init__(self, config, folder):
        type(self).started = config, folder

    def events(self):
        yield from self.events_to_tell

    def close(self):
        type(self).started += ("closed",)


@pytest.fixture
def model(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "CompileProcess", FakeProcess)
    monkeypatch.setattr(command, "compiler_name", lambda: "triton-3.6.0-1")
    monkeypatch.setattr(command, "torch_version", lambda: "2.11.0+cu130")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return str(tmp_path)


def test_a_line_per_kernel(model, tmp_path, capsys):
    words = [model, "--load-format", "dummy", "--skip-tokenizer-init", "--target", "sm_90a"]
    assert command.main([*words, "--output", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["1.50", "s", "_rms_norm_kernel"]
    assert lines[-1].startswith(f"1 kernels in {tmp_path / 'out'}, 0 failed")
    config, folder, closed = FakeProcess.started
    assert b"sm_90a" in config
    assert (folder, closed) == (tmp_path / "out", "closed")


def test_a_process_that_ends_early(model, monkeypatch):
    monkeypatch.setattr(FakeProcess, "events_to_tell", [Compiled(KERNEL, 1.5)])
    with pytest.raises(ConfigError, match="ended early"):
        command.main([model, "--load-format", "dummy", "--target", "sm90"])


def test_failures_are_the_exit_code(model, monkeypatch, capsys):
    monkeypatch.setattr(FakeProcess, "events_to_tell", [AllReady(3, 2, 3.0, ["warm-up"])])
    assert command.main([model, "--load-format", "dummy", "--target", "sm_90a"]) == 1
    assert "only when it is met: warm-up" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["h100", "sm", "90", "sm_9"])
def test_a_target_is_an_architecture(model, target):
    with pytest.raises(ConfigError, match="write sm_90a"):
        command.main([model, "--target", target])


def test_what_must_be_installed(model, monkeypatch):
    monkeypatch.setattr(command, "torch_version", lambda: "2.13.0+cpu")
    with pytest.raises(ConfigError, match="CPU build"):
        command.main([model, "--target", "sm_90a"])
    monkeypatch.setattr(command, "compiler_name", lambda: "no-triton")
    with pytest.raises(ConfigError, match="Triton is not installed"):
        command.main([model, "--target", "sm_90a"])
