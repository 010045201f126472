"""Downloads through modelscope_hub itself, from a local server."""

import hashlib
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from octavo.checkpoints import modelscope
from octavo.types.errors import CheckpointError
from support.handler_server import serving
from support.tiny_gguf import write_gguf

FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"a second copy",
    "original/params.json": b"{}",
    "README.md": b"text",
}


class Hub:
    """Repositories by name; `requests` are paths with their queries."""

    def __init__(self, repositories):
        self.repositories = repositories
        self.requests = []
        self.endpoint = ""


@contextmanager
def modelscope_server(repositories):
    hub = Hub(repositories)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self):
            self.answer(False)

        def do_GET(self):
            self.answer(True)

        def log_message(self, *args):
            pass

        def answer(self, body):
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            path = unquote(parts.path).strip("/").split("/")
            hub.requests.append((path, query))
            status, data = respond(hub, path, query)
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data)

    with serving(Handler) as hub.endpoint:
        yield hub


def respond(hub, path, query):
    if path[:3] == ["api", "v1", "models"] and "/".join(path[3:5]) in hub.repositories:
        files = hub.repositories["/".join(path[3:5])]
        if path[5:] == ["repo", "files"]:
            entries = [
                {
                    "Path": name,
                    "Name": name.rpartition("/")[2],
                    "Type": "blob",
                    "Size": len(data),
                    "Sha256": hashlib.sha256(data).hexdigest(),
                    "Revision": "master",
                }
                for name, data in files.items()
            ]
            return reply({"Files": entries})
        if path[5:] == ["repo"] and query.get("FilePath") in files:
            return 200, files[query["FilePath"]]
        if path[5:] == []:
            return reply({"Name": path[4], "Path": path[3]})
        if path[5:] == ["revisions"]:
            return reply({"RevisionMap": {"Branches": [{"Revision": "master"}], "Tags": []}})
    return 404, json.dumps({"Code": 404, "Success": False, "Message": "not found"}).encode()


def reply(data):
    return 200, json.dumps({"Code": 200, "Success": True, "Data": data}).encode()


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MODELSCOPE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    ggufs = {"m.gguf": write_gguf(tmp_path / "m.gguf").read_bytes()}
    with modelscope_server({"owner/name": dict(FILES), "owner/ggufs": ggufs}) as hub:
        monkeypatch.setenv("MODELSCOPE_ENDPOINT", hub.endpoint)
        yield hub


def fetch(hub, tmp_path, model="owner/name", weights=True, load_format="auto"):
    cache = str(tmp_path / "own")
    return modelscope.fetch(model, None, cache, [], weights, load_format, hub.endpoint)


def names(folder):
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def test_what_is_needed(hub, tmp_path):
    folder = fetch(hub, tmp_path, weights=False)
    assert names(folder) == {"config.json", "tokenizer.json"}
    assert names(fetch(hub, tmp_path)) == {"config.json", "tokenizer.json", "model.safetensors"}
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    found = names(fetch(hub, tmp_path, load_format="pt"))
    assert "pytorch_model.bin" in found


def test_one_gguf(hub, tmp_path):
    path = fetch(hub, tmp_path, "owner/ggufs/m.gguf")
    assert path.read_bytes() == hub.repositories["owner/ggufs"]["m.gguf"]
    with pytest.raises(CheckpointError, match="no file absent"):
        fetch(hub, tmp_path, "owner/ggufs/absent.gguf")


def test_what_is_not_there(hub, tmp_path):
    with pytest.raises(CheckpointError, match="owner/absent is neither a local path nor"):
        fetch(hub, tmp_path, "owner/absent")


def test_nobody_answers(hub, tmp_path, monkeypatch):
    folder = fetch(hub, tmp_path)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    hub.endpoint = "http://127.0.0.1:9"
    assert fetch(hub, tmp_path) == folder
    with pytest.raises(CheckpointError, match="can't fetch owner/ggufs from ModelScope"):
        fetch(hub, tmp_path, "owner/ggufs/m.gguf")


def test_the_variable_that_chooses(hub):
    """In a process of its own: the package reads the environment once."""
    code = (
        "from octavo.checkpoints.locate import find_model\n"
        "print(find_model('owner/name').config())\n"
    )
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OCTAVO_USE_MODELSCOPE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "{'model_type': 'llama'}", done.stderr
