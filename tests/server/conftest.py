"""Servers for the tests over real sockets."""

import openai
import pytest

from support.http_server import ServerThread, check_tail


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
