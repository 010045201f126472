"""What becomes of requests when the server is told to stop: they end, nothing new begins."""

import threading

import httpx
import pytest

from support.fake_async_llm import SCRIPT
from support.http_server import wait_until

BODY = {"prompt": "a", "max_tokens": 40, "vllm_xargs": {"sleep": 0.02}}


def post_in_thread(server, body):
    replies = []

    def post():
        replies.append(httpx.post(f"{server.url}/v1/completions", json=body, timeout=30))

    thread = threading.Thread(target=post)
    thread.start()
    wait_until(lambda: server.engine.num_running, "the request runs")
    return thread, replies


def drain(server):
    server.loop.call_soon_threadsafe(server.server.drain)


def test_what_runs_is_finished_and_nothing_new_begins(make_server):
    server = make_server(shutdown_timeout=20)
    thread, replies = post_in_thread(server, BODY)
    with httpx.Client(base_url=server.url) as client:
        assert client.get("/health").status_code == 200
        drain(server)
        wait_until(lambda: client.get("/health").status_code == 503, "not ready")
        refused = client.post("/v1/completions", json=BODY)
        assert client.get("/metrics").status_code == 200
    assert refused.status_code == 503
    assert refused.headers["retry-after"]
    assert "shutting down" in refused.json()["error"]["message"]
    thread.join()
    assert replies[0].status_code == 200
    assert replies[0].json()["choices"][0]["text"] == SCRIPT[:40]
    server.join(10)
    assert not server.is_alive()


def test_what_takes_too_long_is_ended(make_server):
    server = make_server(shutdown_timeout=0.3)
    thread, replies = post_in_thread(server, BODY | {"max_tokens": 250})
    drain(server)
    thread.join()
    assert replies[0].status_code == 503
    server.join(10)


@pytest.mark.parametrize("timeout", [0, 20])
def test_without_time_or_when_told_twice_it_ends_at_once(make_server, timeout):
    server = make_server(shutdown_timeout=timeout)
    thread, replies = post_in_thread(server, BODY | {"max_tokens": 250})
    drain(server)
    if timeout:
        drain(server)
    thread.join()
    assert replies[0].status_code == 503


def test_an_idle_server_stops_without_waiting(make_server):
    server = make_server(shutdown_timeout=100)
    drain(server)
    server.join(10)
    assert not server.is_alive()
