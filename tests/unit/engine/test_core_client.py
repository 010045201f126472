"""A core in its own process: what goes over the sockets, deaths on both sides, the end."""

import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from octavo.engine.core_client import AsyncMPClient, MPClient
from octavo.engine.launch import IDENTITY
from octavo.types.errors import (
    ConfigError,
    EngineDeadError,
    EngineStalledError,
    EngineStartError,
    OctavoError,
)
from octavo.types.request import EngineCoreRequest
from octavo.types.sampling_params import SamplingParams
from support.fake_executor import expected_tokens
from support.processes import is_running, leftovers, wait_until
from support.tiny import VOCAB_SIZE, fake_config


def request(name, prompt=(5, 6, 7), max_tokens=8, **script):
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, extra_args=script or None)
    return EngineCoreRequest(name, list(prompt), len(prompt), params, 0, 0.0, max_tokens)


def tokens_of(client, name):
    tokens = []
    while True:
        for output in client.get_output().outputs:
            if output.request_id == name:
                tokens += output.new_token_ids
                if output.finish_reason is not None:
                    return tokens


def take_outputs(client):
    while True:
        client.get_output()


def take_messages(client, check):
    while True:
        client._accept(*client._core.receive(timeout=None))
        check()


@pytest.fixture(scope="module")
def client():
    client = MPClient(fake_config())
    yield client
    client.shutdown()
    assert not is_running(client.core_pid)


@pytest.fixture
def mortal(tmp_path, monkeypatch):
    """A client of its own, whose socket files would be in tmp_path."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("OCTAVO_STALL_TIMEOUT_S", "0.2")
    client = MPClient(fake_config())
    yield client
    client.shutdown()


def test_requests_and_outputs(client):
    client.add_requests([request("a"), request("b", (9,))])
    tokens = {"a": [], "b": []}
    ended = set()
    while len(ended) < 2:
        for output in client.get_output().outputs:
            tokens[output.request_id] += output.new_token_ids
            if output.finish_reason is not None:
                ended.add(output.request_id)
    assert tokens["a"] == expected_tokens([5, 6, 7], 8, VOCAB_SIZE)
    assert tokens["b"] == expected_tokens([9], 8, VOCAB_SIZE)


def test_facts_of_the_core(client):
    assert client.facts.block_size == 16
    assert client.facts.max_model_len == 256
    assert client.facts.num_blocks > 1


def test_utilities_answer_or_fail_by_themselves(client):
    assert client.call_utility("reset_prefix_cache") is True
    assert client.call_utility("collective_rpc", "echo", ["é", 2]) == [["é", 2]]
    for method, args, message in [
        ("nothing", (), "no utility"),
        ("collective_rpc", ("nothing",), "no public method"),
        ("collective_rpc", (), "missing"),
        ("collective_rpc", ("object",), "Encoding objects"),
    ]:
        with pytest.raises(OctavoError, match=message):
            client.call_utility(method, *args)
    client.add_requests([request("after")])
    assert tokens_of(client, "after") == expected_tokens([5, 6, 7], 8, VOCAB_SIZE)


def test_outputs_that_arrive_before_an_answer_are_kept(client):
    client.add_requests([request("kept")])
    assert client.call_utility("collective_rpc", "echo", []) == [[]]
    wait_until(lambda: list(client.call_utility("get_request_counts")) == [0, 0])
    assert tokens_of(client, "kept") == expected_tokens([5, 6, 7], 8, VOCAB_SIZE)


def test_what_is_no_message_of_ours_is_dropped(client):
    for frames in (
        [pickle.dumps({"a": 1})],
        [b"\x00", pickle.dumps([request("evil")])],
        [b"\x00", b"\xc1"],
        [b"\x63", b"\xc0"],
        [b"\x00", b"", b""],
        [],
    ):
        client._core._inputs.send_multipart([IDENTITY, *frames])
    client.add_requests([request("after")])
    assert tokens_of(client, "after") == expected_tokens([5, 6, 7], 8, VOCAB_SIZE)


def test_a_foreign_message_on_the_output_socket_is_dropped(client, caplog):
    caplog.set_level(logging.WARNING, logger="octavo")
    push = client._core._context.socket(8)  # PUSH
    push.connect(client._core._obituary)
    push.send_multipart([b"\x13", pickle.dumps("x")])
    assert client._core.receive(timeout=0.5) is None
    push.close(linger=0)
    assert "dropped" in caplog.text


def test_the_core_waits_passively_and_has_no_pickle_loaded_by_sockets(client):
    assert client.call_utility("collective_rpc", "environ", ["OMP_WAIT_POLICY"]) == ["PASSIVE"]
    assert client.call_utility("collective_rpc", "environ", ["KMP_BLOCKTIME"]) == ["0"]


def test_an_idle_core_sleeps(client):
    stat = Path(f"/proc/{client.core_pid}/stat")

    def ticks():  # hundredths of a second of processor time
        return sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13]))

    client.call_utility("get_request_counts")
    before = ticks()
    time.sleep(0.3)
    assert ticks() - before <= 2


def test_socket_files_are_gone_once_both_sides_are_connected(mortal, tmp_path):
    assert leftovers(tmp_path) == []
    mortal.add_requests([request("a")])
    assert tokens_of(mortal, "a")


def test_a_killed_core_ends_every_call(mortal):
    mortal.add_requests([request("a", max_tokens=200, sleep=0.05)])
    mortal.get_output()
    os.kill(mortal.core_pid, signal.SIGKILL)
    with pytest.raises(EngineDeadError, match="SIGKILL"):
        take_outputs(mortal)
    assert mortal.engine_dead
    for call in (
        mortal.check_health,
        mortal.get_output,
        lambda: mortal.add_requests([request("b")]),
        lambda: mortal.call_utility("reset_prefix_cache"),
    ):
        with pytest.raises(EngineDeadError):
            call()


def test_a_device_fault_is_told(mortal):
    mortal.add_requests([request("a", crash_at=1)])
    with pytest.raises(EngineDeadError, match="RuntimeError: device fault: an illegal"):
        take_outputs(mortal)
    wait_until(lambda: not is_running(mortal.core_pid))


def test_sigterm_ends_the_core_in_order(mortal):
    mortal.add_requests([request("a", max_tokens=200, sleep=0.05)])
    mortal.get_output()
    os.kill(mortal.core_pid, signal.SIGTERM)
    with pytest.raises(EngineDeadError, match="exited with code 0"):
        take_outputs(mortal)


def test_ctrl_c_is_left_to_the_front_end(mortal):
    os.kill(mortal.core_pid, signal.SIGINT)
    mortal.add_requests([request("a")])
    assert tokens_of(mortal, "a")


def test_shutdown_ends_the_process_even_in_the_middle_of_work(mortal, tmp_path):
    mortal.add_requests([request("a", max_tokens=200, sleep=0.05)])
    mortal.get_output()
    mortal.shutdown()
    assert not is_running(mortal.core_pid)
    assert leftovers(tmp_path) == []
    mortal.shutdown()
    with pytest.raises(EngineDeadError, match="shut down"):
        mortal.get_output()


def test_a_forgotten_client_ends_its_core():
    client = MPClient(fake_config())
    pid = client.core_pid
    del client
    wait_until(lambda: not is_running(pid))


def test_a_stalled_step_makes_the_core_unhealthy_until_it_ends(mortal):
    mortal.check_health()
    mortal.add_requests([request("a", max_tokens=2, sleep=0.7)])
    with pytest.raises(EngineStalledError, match="OCTAVO_STALL_TIMEOUT_S"):
        take_messages(mortal, mortal.check_health)
    with pytest.raises(StopIteration):
        take_messages(mortal, lambda: mortal._heartbeat.stalled or next(iter(())))
    mortal.check_health()


@pytest.mark.parametrize(
    ("revision", "error", "text"),
    [
        ("no-weights", ConfigError, "the weights are missing; download them"),
        ("bug", EngineStartError, "KeyError: 'surprise'"),
    ],
)
def test_a_failed_start_gives_its_reason(revision, error, text, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(error, match=text):
        MPClient(fake_config(revision=revision))
    assert leftovers(tmp_path) == []


def test_a_process_that_dies_while_starting(monkeypatch):
    config = fake_config(executor="support.fake_executor:DyingExecutor")
    with pytest.raises(EngineStartError, match="exited with code 7 while starting"):
        MPClient(config)


PARENT = """
import sys, time
sys.path[:0] = {path!r}
from support.tiny import fake_config
from octavo.engine.core_client import MPClient
client = MPClient(fake_config({options}))
print(client.core_pid, flush=True)
time.sleep(60)
"""


def start_parent(tmp_path, options=""):
    script = PARENT.format(path=sys.path, options=options)
    env = os.environ | {"TMPDIR": str(tmp_path)}
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )


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
    lines = err.strip().splitlines()
    assert lines[-1] == (
        "octavo.types.errors.ConfigError: revision='no-weights': the weights are missing; "
        "download them"
    )
    assert err.count("Traceback") == 1, "the script's own"


async def test_the_asynchronous_client():
    client = AsyncMPClient(fake_config())
    try:
        client.add_requests([request("a")])
        tokens = []
        while len(tokens) < 8:
            for output in (await client.get_output()).outputs:
                tokens += output.new_token_ids
        assert tokens == expected_tokens([5, 6, 7], 8, VOCAB_SIZE)
        assert await client.call_utility("collective_rpc", "echo", [1]) == [[1]]
        with pytest.raises(OctavoError, match="no utility"):
            await client.call_utility("nothing")
        os.kill(client.core_pid, signal.SIGKILL)
        with pytest.raises(EngineDeadError):
            await client.call_utility("collective_rpc", "echo", [1])
        for _ in range(2):
            with pytest.raises(EngineDeadError, match="SIGKILL"):
                await client.get_output()
    finally:
        client.shutdown()


def test_a_start_that_takes_too_long_and_the_mode_of_the_socket_directory(monkeypatch):
    modes = []
    real = tempfile.mkdtemp

    def noting(**kwargs):
        path = real(**kwargs)
        modes.append(os.stat(path).st_mode & 0o777)
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", noting)
    monkeypatch.setenv("OCTAVO_ENGINE_READY_TIMEOUT_S", "0.0")
    with pytest.raises(EngineStartError, match="OCTAVO_ENGINE_READY_TIMEOUT_S"):
        MPClient(fake_config())
    assert modes[-1] == 0o700
