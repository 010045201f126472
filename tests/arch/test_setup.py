"""tools/setup.py: a set-up that was interrupted is taken up again."""

import importlib.util
import sys
import venv
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "setup.py"


@pytest.fixture
def setup():
    spec = importlib.util.spec_from_file_location("octavo_setup", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_environment_that_lost_its_pip_is_made_again(setup, tmp_path, monkeypatch):
    venv.create(tmp_path / "env", with_pip=False)
    assert not setup.has_pip(str(tmp_path / "env" / "bin" / "python"))
    assert not setup.has_pip(str(tmp_path / "none" / "bin" / "python"))
    made, commands = [], []
    monkeypatch.setattr(setup.venv, "create", lambda folder, with_pip: made.append(folder))
    monkeypatch.setattr(setup, "run", lambda *words, check=True: commands.append(words) or True)
    monkeypatch.setattr(sys, "argv", ["setup.py", "--venv", str(tmp_path / "env")])
    setup.main()
    assert made == [tmp_path / "env"]
    assert any("-e" in words for words in commands)
    made.clear()
    setup.main()
    assert made == []


def test_a_torch_without_metadata_is_not_there(setup, tmp_path):
    venv.create(tmp_path, with_pip=False)
    (package,) = tmp_path.glob("lib/python*/site-packages")
    (package / "torch").mkdir()
    python = str(tmp_path / "bin" / "python")
    assert not setup.has_package(python, "torch")
    (package / "torch-9.dist-info").mkdir()
    (package / "torch-9.dist-info" / "METADATA").write_text("Name: torch\nVersion: 9\n")
    assert setup.has_package(python, "torch")


def test_triton_comes_with_the_tests_unless_torch_brought_it(setup, tmp_path, monkeypatch):
    venv.create(tmp_path, with_pip=False)
    (package,) = tmp_path.glob("lib/python*/site-packages")
    python, commands = str(tmp_path / "bin" / "python"), []
    monkeypatch.setattr(setup, "run", lambda *words, check=True: commands.append(words) or False)
    monkeypatch.setattr(sys, "platform", "linux")
    setup.install_triton(python)
    assert [words[-1] for words in commands] == [setup.TRITON]
    (package / "triton-3.6.0.dist-info").mkdir()
    (package / "triton-3.6.0.dist-info" / "METADATA").write_text("Name: triton\nVersion: 3.6.0\n")
    setup.install_triton(python)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert len(commands) == 1
