"""Starting, watching and ending a core: nothing is left behind, every failure has a reason."""

import os
import signal
import subprocess
import sys
import tempfile

import pytest

from octavo.engine import launch
from octavo.engine.core_client import MPClient
from octavo.types.errors import ConfigError, EngineDeadError, EngineStartError
from support.cores import request, running_client, tokens_of
from support.processes import is_running, leftovers, wait_until
from support.tiny import fake_config

PARENT = """
import sys, time
sys.path[:0] = {path!r}
from support.tiny import fake_config
from octavo.engine.core_client import MPClient
client = MPClient(fake_config({options}))
print(client.core_pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where temporary files go."""
    fake_config()  # the model's folder stays out of it
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def start_parent(folder, options=""):
    return subprocess.Popen(
        [sys.executable, "-c", PARENT.format(path=sys.path, options=options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)},
    )


def test_socket_files_are_gone_once_both_sides_are_connected(folder):
    with running_client() as client:
        assert leftovers(folder) == []
        client.add_requests([request("a")])
        assert tokens_of(client, "a")


def test_a_clean_end_in_the_middle_of_work(folder):
    with running_client() as client:
        client.add_requests([request("a", max_tokens=200, sleep=0.05)])
        client.get_output()
        client.shutdown()
        assert not is_running(client.core_pid)
        assert leftovers(folder) == []
        client.shutdown()
        with pytest.raises(EngineDeadError, match="shut down"):
            client.get_output()


def test_ctrl_c_passes_a_starting_core_by(folder):
    # Sent as soon as the process is there, long before it has read its own handlers.
    spawned = launch._spawn(fake_config(), str(folder))
    try:
        spawned.send_signal(signal.SIGINT)
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        with pytest.raises(subprocess.TimeoutExpired):
            spawned.wait(0.5)
    finally:
        spawned.kill()
        spawned.wait()


def test_a_core_that_does_not_listen_is_killed(monkeypatch):
    monkeypatch.setattr("octavo.engine.launch.GRACE", 0.1)
    monkeypatch.setattr("octavo.engine.launch.KILL_AFTER", 0.1)
    with running_client() as client:
        client.add_requests([request("a", sleep=60)])
        client.shutdown()
        assert not is_running(client.core_pid)


def test_a_forgotten_client_ends_its_core():
    client = MPClient(fake_config())
    pid = client.core_pid
    del client
    wait_until(lambda: not is_running(pid))


def test_a_forked_process_does_not_end_the_core():
    with running_client() as client:
        child = os.fork()
        if child == 0:
            client._core.stop()
            os._exit(0)
        os.waitpid(child, 0)
        client.add_requests([request("a")])
        assert tokens_of(client, "a")


def test_a_killed_parent_leaves_nothing(tmp_path):
    parent = start_parent(tmp_path)
    pid = int(parent.stdout.readline())
    assert is_running(pid)
    parent.kill()
    parent.communicate()
    wait_until(lambda: not is_running(pid))
    assert leftovers(tmp_path) == []


def test_the_reason_of_a_failed_start_is_the_last_line(tmp_path):
    parent = start_parent(tmp_path, "revision='no-weights'")
    _, err = parent.communicate()
    assert parent.returncode != 0
    assert err.strip().splitlines()[-1] == (
        "octavo.types.errors.ConfigError: revision='no-weights': the weights are missing; "
        "download them"
    )
    assert err.count("Traceback") == 1, "the script's own"


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"revision": "no-weights"}, ConfigError, "the weights are missing; download them"),
        ({"revision": "bug"}, EngineStartError, "KeyError: 'surprise'"),
        ({"num_gpu_blocks_override": 2}, ConfigError, "max_model_len"),
        (
            {"executor": "support.fake_executor:DyingExecutor"},
            EngineStartError,
            "exited with code 7 while starting",
        ),
    ],
)
def test_a_failed_start_gives_its_reason(options, error, text, folder):
    with pytest.raises(error, match=text):
        MPClient(fake_config(**options))
    assert leftovers(folder) == []


def test_a_start_that_takes_too_long_and_who_may_use_the_sockets(monkeypatch):
    modes = []
    make = tempfile.mkdtemp

    def noting(**kwargs):
        path = make(**kwargs)
        modes.append(os.stat(path).st_mode & 0o777)
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", noting)
    monkeypatch.setenv("OCTAVO_ENGINE_READY_TIMEOUT_S", "0.0")
    with pytest.raises(EngineStartError, match="OCTAVO_ENGINE_READY_TIMEOUT_S"):
        MPClient(fake_config())
    assert modes[-1] == 0o700, "our user only"


def test_a_long_temporary_path_is_avoided(tmp_path, monkeypatch):
    fake_config()
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with running_client() as client:
        client.add_requests([request("a")])
        assert tokens_of(client, "a")
    assert leftovers(deep) == []
