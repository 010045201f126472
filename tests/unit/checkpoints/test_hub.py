"""Downloads through huggingface_hub itself, from a local server."""

import os
import subprocess
import sys

import pytest

from octavo.checkpoints import hub
from octavo.types.errors import CheckpointError
from support.hub_server import COMMIT, hub_server
from support.tiny_gguf import write_gguf

SMALL = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "chat_template.jinja": b"text",
}
REPOSITORY = SMALL | {
    "model-1.safetensors": b"weights one",
    "model-2.safetensors": b"weights two",
    "model.safetensors.index.json": b"{}",
    "consolidated.safetensors": b"a second copy",
    "original/params.json": b"{}",
    "pytorch_model.bin": b"old",
    "README.md": b"text",
}


@pytest.fixture
def server(tmp_path):
    ggufs = {
        f"m.{quantization}.gguf": write_gguf(tmp_path / "m.gguf").read_bytes()
        for quantization in ("Q4_0", "Q8_0")
    }
    with hub_server({"owner/name": dict(REPOSITORY), "owner/ggufs": ggufs}) as server:
        yield server


def fetch(server, tmp_path, model="owner/name", revision=None, ignore=(), weights=True):
    cache = str(tmp_path / "cache")
    return hub.fetch(model, revision, cache, ignore, weights, endpoint=server.endpoint)


def names(folder):
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_only_needed_files_into_the_cache(server, tmp_path):
    folder = fetch(server, tmp_path)
    assert folder == tmp_path / "cache/models--owner--name/snapshots" / COMMIT
    assert names(folder) == {
        *SMALL,
        "model-1.safetensors",
        "model-2.safetensors",
        "model.safetensors.index.json",
    }
    assert (folder / "model-2.safetensors").read_bytes() == b"weights two"
    assert (tmp_path / "cache/models--owner--name/refs/main").read_text() == COMMIT


def test_small_files_first_then_weights(server, tmp_path):
    folder = fetch(server, tmp_path, weights=False)
    assert names(folder) == {*SMALL, "model.safetensors.index.json"}
    fetch(server, tmp_path, ignore=["model-2*"])
    assert "model-1.safetensors" in names(folder)
    assert "model-2.safetensors" not in names(folder)


def test_second_time_nothing_is_downloaded(server, tmp_path):
    folder = fetch(server, tmp_path)
    server.requests.clear()
    assert fetch(server, tmp_path) == folder
    assert not [path for _, path in server.requests if "/resolve/" in path]


def test_revision(server, tmp_path):
    assert fetch(server, tmp_path, revision="v1").name == COMMIT
    with pytest.raises(CheckpointError, match="owner/name has no revision 'v2'; check --revision"):
        fetch(server, tmp_path, revision="v2")


def test_one_gguf_of_several(server, tmp_path):
    path = fetch(server, tmp_path, "owner/ggufs:Q8_0")
    assert path.name == "m.Q8_0.gguf"
    assert names(path.parent) == {"m.Q8_0.gguf"}
    assert fetch(server, tmp_path, "owner/ggufs/m.Q4_0.gguf").name == "m.Q4_0.gguf"
    with pytest.raises(CheckpointError, match=r"no file matches \*Q5_K\*\.gguf"):
        fetch(server, tmp_path, "owner/ggufs:Q5_K")
    with pytest.raises(CheckpointError, match=r"m\.Q4_0\.gguf, m\.Q8_0\.gguf matches"):
        fetch(server, tmp_path, "owner/ggufs:_0")
    with pytest.raises(CheckpointError, match=r"no config\.json; if it holds GGUF files, name"):
        fetch(server, tmp_path, "owner/ggufs")


def test_missing_private_and_gated(server, tmp_path):
    with pytest.raises(CheckpointError, match="neither a local path nor a repository"):
        fetch(server, tmp_path, "owner/absent")
    server.gated.add("owner/name")
    with pytest.raises(CheckpointError, match=r"gated: accept its licence .* HF_TOKEN"):
        fetch(server, tmp_path)


def test_unreachable_hub_uses_the_cache(server, tmp_path):
    folder = fetch(server, tmp_path)
    server.endpoint = "http://127.0.0.1:9"
    assert fetch(server, tmp_path) == folder
    with pytest.raises(CheckpointError, match="owner/ggufs is not in the local cache") as caught:
        fetch(server, tmp_path, "owner/ggufs:Q8_0")
    assert "\n" not in str(caught.value)


def find_in_a_process(environment):
    code = (
        "from octavo.checkpoints.locate import find_model\n"
        "from octavo.types.errors import CheckpointError\n"
        "try: print(find_model('owner/name').path)\n"
        "except CheckpointError as error: print('refused:', error)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_environment_names_hub_cache_and_offline_mode(server, tmp_path):
    online = {"HF_ENDPOINT": server.endpoint, "HF_HOME": str(tmp_path / "home")}
    offline = online | {"HF_HUB_OFFLINE": "1"}
    refused = find_in_a_process(offline)
    assert refused.startswith("refused: owner/name is not in the local cache")
    assert "HF_HUB_OFFLINE" in refused
    assert not server.requests
    path = find_in_a_process(online)
    assert path == str(tmp_path / "home/hub/models--owner--name/snapshots" / COMMIT)
    server.requests.clear()
    assert find_in_a_process(offline) == path
    assert not server.requests


def test_without_a_network_it_is_told_at_once(tmp_path, monkeypatch):
    waits = []
    monkeypatch.setattr("time.sleep", waits.append)
    with pytest.raises(CheckpointError, match="not in the local cache and the hub can't be"):
        hub.fetch("owner/name", None, str(tmp_path), (), True, endpoint="http://127.0.0.1:9")
    assert waits == []
