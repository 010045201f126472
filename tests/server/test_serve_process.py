"""`octavo serve` as a process: how it ends, and what it says when it does not start."""

import json
import os
import signal
import socket
from pathlib import Path

import httpx
import psutil
import pytest

from support.http_server import wait_until
from support.processes import leftovers
from support.served_process import ServedProcess
from support.tiny import tiny_folder


def dummy(*flags, env=None):
    return ServedProcess(tiny_folder(), "--load-format", "dummy", "--port", "0", *flags, env=env)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_every_process_and_what_runs(number):
    served = dummy("--max-model-len", "512")
    served.wait_until_ready()
    children = served.children()
    assert children
    body = {"prompt": "a", "max_tokens": 400, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{served.url}/v1/completions", json=body, timeout=60) as reply:
        lines = reply.iter_lines()
        next(lines)
        served.process.send_signal(number)
        assert [line for line in lines if line][-1] == "data: [DONE]"
    assert served.wait() == 0, "".join(served.log[-20:])
    assert not any(child.is_running() for child in children)


def test_a_killed_engine_ends_the_server_with_the_cause():
    served = dummy()
    served.wait_until_ready()
    children = served.children()
    body = {"prompt": "a", "max_tokens": 400, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{served.url}/v1/completions", json=body, timeout=60) as reply:
        lines = (line for line in reply.iter_lines() if line)
        next(lines)
        for child in children:
            child.kill()
        *_, error, finish, done = lines
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == 503
    assert json.loads(finish.removeprefix("data: "))["choices"][0]["finish_reason"] == "error"
    assert done == "data: [DONE]"
    assert served.wait() == 1
    assert "engine" in served.log[-1]
    assert not any("Traceback" in line for line in served.log)


def test_a_killed_server_takes_its_engine_along():
    served = dummy()
    served.wait_until_ready()
    children = served.children()
    served.process.kill()
    served.process.wait()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_start_that_is_cut_short_leaves_nothing(tmp_path, number, code):
    served = dummy(env=os.environ | {"TMPDIR": str(tmp_path)})
    # The core has this to say before it loads what takes a second; then the files are gone.
    wait_until(lambda: any("memory plan" in line for line in served.log), "the core starts")
    wait_until(lambda: not leftovers(tmp_path), "both sides are connected")
    children = served.children()
    assert children
    served.process.send_signal(number)
    assert served.wait() == code
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["/no/such/model"], ["/no/such/model"]),
        ([tiny_folder(), "--load-format", "dummy", "--max-model-len", "100000"], ["100000"]),
        ([tiny_folder()], [Path(tiny_folder()).name]),
        ([tiny_folder(), "--ssl-certfile", "/no/cert.pem"], ["/no/cert.pem"]),
        ([tiny_folder(), "--prot", "80"], ["--port"]),
    ],
)
def test_the_last_line_of_a_failed_start_says_why(flags, words):
    served = ServedProcess("--port", "0", *flags)
    assert served.wait() != 0
    assert served.log[-1].startswith("octavo serve: error: ")
    for word in words:
        assert word in served.log[-1]
    assert not any("Traceback" in line for line in served.log)


def test_a_taken_port_is_told_at_once():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        served = ServedProcess(tiny_folder(), "--load-format", "dummy", "--port", str(port))
        assert served.wait() != 0
    assert f"port {port}" in served.log[-1]
    assert len(served.log) == 1


def test_a_local_folder_needs_no_hub():
    with socket.create_server(("127.0.0.1", 0)) as hub:
        hub.settimeout(0.01)
        place = f"http://127.0.0.1:{hub.getsockname()[1]}"
        online = {"HF_ENDPOINT": place, "HF_HUB_OFFLINE": "0", "HTTPS_PROXY": place}
        served = dummy(env=os.environ | online)
        served.wait_until_ready()
        assert served.stop() == 0
        with pytest.raises(TimeoutError):
            hub.accept()


def test_keys_from_the_command_line():
    served = dummy("--api-key", "one", "two")
    try:
        served.wait_until_ready()
        for key, status in (("one", 200), ("two", 200), ("three", 401)):
            headers = {"authorization": f"Bearer {key}"}
            assert httpx.get(f"{served.url}/v1/models", headers=headers).status_code == status
    finally:
        served.stop()
