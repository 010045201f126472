"""The core in this process: no child, one step per get_output, errors as they are."""

import os

import psutil
import pytest

from octavo.engine.inproc_client import InprocClient
from octavo.types.engine_output import FinishReason
from octavo.types.errors import OctavoError
from octavo.types.request import FinishRequest
from support.cores import PROMPT, request, tokens_of
from support.fake_executor import expected_tokens
from support.tiny import VOCAB_SIZE, fake_config


@pytest.fixture
def client():
    return InprocClient(fake_config())


def test_requests_are_stepped_here():
    before = set(psutil.Process().children())
    client = InprocClient(fake_config())
    client.add_requests([request("a")])
    assert tokens_of(client, "a") == expected_tokens(PROMPT, 8, VOCAB_SIZE)
    assert set(psutil.Process().children()) <= before


def test_ends_from_outside(client):
    client.add_requests([request("a", max_tokens=100), request("b", max_tokens=100)])
    client.get_output()
    client.abort_requests(["a"])
    client.finish_requests([FinishRequest("b", FinishReason.STOP, 0)])
    client.get_output()
    assert list(client.call_utility("get_request_counts")) == [0, 0]


def test_a_failed_utility(client):
    with pytest.raises(OctavoError, match="no utility 'nothing'"):
        client.call_utility("nothing")


def test_a_device_fault_arrives_as_it_is(client):
    client.add_requests([request("a", crash_at=0)])
    with pytest.raises(RuntimeError, match="device fault"):
        client.get_output()
    client.shutdown()


def test_openmp_threads_wait_passively(monkeypatch):
    monkeypatch.delenv("KMP_BLOCKTIME", raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    InprocClient(fake_config())
    assert os.environ["KMP_BLOCKTIME"] == "0"
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE", "what the user chose stays"
