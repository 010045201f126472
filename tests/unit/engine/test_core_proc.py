"""The core's process: what it drops, what it answers, how it waits and how it ends."""

import os
import pickle
import signal
import time
from pathlib import Path

import pytest

from octavo.engine.core_link import IDENTITY
from octavo.types.errors import EngineDeadError, EngineStalledError, OctavoError
from support.cores import (
    PROMPT,
    request,
    running_client,
    take_messages,
    take_outputs,
    tokens_of,
)
from support.fake_executor import expected_tokens
from support.processes import is_running, wait_until
from support.tiny import VOCAB_SIZE

EXPECTED = expected_tokens(PROMPT, 8, VOCAB_SIZE)


@pytest.fixture(scope="module")
def client():
    with running_client() as client:
        yield client


@pytest.fixture
def mortal(monkeypatch):
    """A client whose core a test may harm."""
    monkeypatch.setenv("OCTAVO_STALL_TIMEOUT_S", "0.2")
    with running_client() as client:
        yield client


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"\x00"],
        [b"\x00", b""],
        [b"\x00", b"\xc1"],
        [b"\x00", b"\xc0", b""],
        [b"\x63", b"\xc0"],
        [pickle.dumps({"a": 1})],
        [b"\x00", pickle.dumps([request("evil")])],
        [b"\x03", b"\x93\x01\x02\x03"],
    ],
)
def test_what_is_no_message_of_ours_is_dropped(client, frames):
    client._core._inputs.send_multipart([IDENTITY, *frames])
    client.add_requests([request("after")])
    assert tokens_of(client, "after") == EXPECTED


@pytest.mark.parametrize(
    ("method", "args", "message"),
    [
        ("nothing", (), "no utility"),
        ("collective_rpc", ("nothing",), "no public method"),
        ("collective_rpc", (), "missing"),
        ("collective_rpc", ("object",), "Encoding objects"),
    ],
)
def test_a_failed_utility_fails_alone(client, method, args, message):
    client.add_requests([request("before")])
    with pytest.raises(OctavoError, match=message):
        client.call_utility(method, *args)
    assert tokens_of(client, "before") == EXPECTED


def test_openmp_threads_wait_passively(client):
    for name, value in [("OMP_WAIT_POLICY", "PASSIVE"), ("KMP_BLOCKTIME", "0")]:
        assert client.call_utility("collective_rpc", "environ", [name]) == [value]


def test_an_idle_core_sleeps(client):
    stat = Path(f"/proc/{client.core_pid}/stat")

    def ticks():  # hundredths of a second of processor time
        return sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13]))

    client.call_utility("get_request_counts")
    before = ticks()
    time.sleep(0.3)
    assert ticks() - before <= 2


def test_ctrl_c_is_left_to_the_front_end(client):
    os.kill(client.core_pid, signal.SIGINT)
    client.add_requests([request("a")])
    assert tokens_of(client, "a") == EXPECTED


def test_sigterm_ends_the_core_in_order(mortal):
    mortal.add_requests([request("a", max_tokens=200, sleep=0.05)])
    mortal.get_output()
    os.kill(mortal.core_pid, signal.SIGTERM)
    with pytest.raises(EngineDeadError, match="exited with code 0"):
        take_outputs(mortal)


def test_a_device_fault_is_told_and_ends_the_process(mortal):
    mortal.add_requests([request("a", crash_at=1)])
    with pytest.raises(EngineDeadError, match="RuntimeError: device fault: an illegal"):
        take_outputs(mortal)
    wait_until(lambda: not is_running(mortal.core_pid))


def test_a_stalled_step_makes_the_core_unhealthy_until_it_ends(mortal):
    mortal.check_health()
    mortal.add_requests([request("a", max_tokens=2, sleep=0.7)])
    with pytest.raises(EngineStalledError, match="OCTAVO_STALL_TIMEOUT_S"):
        take_messages(mortal, mortal.check_health)
    with pytest.raises(StopIteration):
        take_messages(mortal, lambda: mortal._heartbeat.stalled or next(iter(())))
    mortal.check_health()
