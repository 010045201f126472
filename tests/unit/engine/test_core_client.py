"""Clients of a core process: outputs kept in order, deaths told to everybody."""

import asyncio
import logging
import os
import pickle
import signal

import pytest
import zmq

from octavo.engine.core_client import CLIENTS, AsyncMPClient, MPClient
from octavo.types.errors import EngineDeadError, OctavoError
from support.cores import PROMPT, request, running_client, take_outputs, tokens_of
from support.fake_executor import expected_tokens
from support.processes import wait_until
from support.tiny import VOCAB_SIZE, fake_config

EXPECTED = expected_tokens(PROMPT, 8, VOCAB_SIZE)


@pytest.fixture(scope="module")
def client():
    with running_client() as client:
        yield client


def test_clients_are_found_by_name():
    assert CLIENTS.names() == ["inproc", "mp"]
    assert CLIENTS.get("mp") is MPClient


def test_requests_and_outputs(client):
    client.add_requests([request("a"), request("b", [9])])
    tokens = {"a": [], "b": []}
    ended = set()
    while len(ended) < 2:
        for output in client.get_output().outputs:
            tokens[output.request_id] += output.new_token_ids
            if output.finish_reason is not None:
                ended.add(output.request_id)
    assert tokens == {"a": EXPECTED, "b": expected_tokens([9], 8, VOCAB_SIZE)}


def test_facts_of_the_core(client):
    assert (client.facts.block_size, client.facts.max_model_len) == (16, 256)
    assert client.facts.min_reusable_prefix == 16
    assert client.facts.num_blocks > 1


def test_utilities_answer(client):
    assert client.call_utility("reset_prefix_cache") is True
    assert client.call_utility("collective_rpc", "echo", ["é", 2]) == [["é", 2]]


def test_outputs_that_arrive_before_an_answer_are_kept(client):
    client.add_requests([request("kept")])
    assert client.call_utility("collective_rpc", "echo", []) == [[]]
    wait_until(lambda: list(client.call_utility("get_request_counts")) == [0, 0])
    assert tokens_of(client, "kept") == EXPECTED


def test_a_foreign_message_on_the_output_socket_is_dropped(client, caplog):
    caplog.set_level(logging.WARNING, logger="octavo")
    push = client._core._context.socket(zmq.PUSH)
    push.connect(client._core._obituary)
    push.send_multipart([b"\x13", pickle.dumps("x")])
    client._core.receive(timeout=0.2)
    push.close(linger=0)
    assert "dropped" in caplog.text


def test_a_killed_core_ends_every_call():
    with running_client() as client:
        client.add_requests([request("a", max_tokens=200, sleep=0.05)])
        client.get_output()
        client.check_health()
        os.kill(client.core_pid, signal.SIGKILL)
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            take_outputs(client)
        assert client.engine_dead
        for call in (
            client.check_health,
            client.get_output,
            lambda: client.add_requests([request("b")]),
            lambda: client.call_utility("reset_prefix_cache"),
        ):
            with pytest.raises(EngineDeadError):
                call()


async def collect(client, count):
    tokens = []
    while len(tokens) < count:
        for output in (await client.get_output()).outputs:
            tokens += output.new_token_ids
    return tokens


async def test_the_asynchronous_client():
    client = AsyncMPClient(fake_config())
    try:
        client.add_requests([request("a")])
        assert await collect(client, 8) == EXPECTED
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


def test_the_asynchronous_client_outlives_a_loop():
    client = AsyncMPClient(fake_config())
    try:
        for name in "ab":
            client.add_requests([request(name)])
            assert asyncio.run(collect(client, 8)) == EXPECTED
    finally:
        client.shutdown()
