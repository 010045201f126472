"""Clients that leave, read slowly or send too much, over real sockets with the engine faked."""

import contextlib
import json
import socket
import threading
import time
from urllib.parse import urlsplit

import httpx
import pytest

from octavo.entrypoints.openai.http_protocol import HTTPProtocol
from support.fake_async_llm import SCRIPT, FakeAsyncLLM
from support.http_server import wait_until
from support.tiny import fake_config


def connect(server, receive_buffer=None):
    parts = urlsplit(server.url)
    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(20)
    sock.connect((parts.hostname, parts.port))
    return sock


def send(sock, path, body):
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    sock.sendall(head.encode() + data)


def long_config():
    return fake_config(max_model_len=4096, hf_overrides={"max_position_embeddings": 4096})


def endless(**fields):
    """A request that runs until it is stopped."""
    return {"prompt": "a", "max_tokens": 250, "vllm_xargs": {"sleep": 0.05}, **fields}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["a", ["a", "b", "c"]])
def test_a_client_that_leaves_ends_its_requests(server, stream, prompt):
    sock = connect(server)
    send(sock, "/v1/completions", endless(stream=stream, prompt=prompt, n=2))
    wait_until(lambda: server.engine.num_running, "the request runs")
    sock.close()
    wait_until(lambda: server.engine.num_running == 0, "the request has ended")


def test_a_client_that_leaves_before_its_body_is_complete(server):
    sock = connect(server)
    sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
    sock.close()


def read_slowly(sock, pause):
    """The texts of a stream's events, read in small pieces."""
    received = b""
    while not received.endswith(b"0\r\n\r\n"):
        received += sock.recv(2048)
        time.sleep(pause)
    sock.close()
    events = [line[6:] for line in received.split(b"\n") if line.startswith(b"data: {")]
    return [json.loads(event)["choices"][0]["text"] for event in events]


def test_slow_readers_get_every_character_once(server):
    texts = [None] * 64

    def read(number):
        sock = connect(server, receive_buffer=2048)
        send(sock, "/v1/completions", {"prompt": "a", "max_tokens": 200, "stream": True})
        texts[number] = "".join(read_slowly(sock, 0.001))

    threads = [threading.Thread(target=read, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [(SCRIPT * 9).encode()[:200].decode(errors="ignore")] * 64


def test_a_reader_that_falls_behind_gets_fewer_and_longer_pieces(make_server):
    server = make_server(FakeAsyncLLM(long_config()), send_buffer=4096)
    sock = connect(server, receive_buffer=2048)
    send(sock, "/v1/completions", {"prompt": "a", "max_tokens": 3000, "stream": True})
    wait_until(lambda: server.engine.num_running, "the request runs")
    wait_until(lambda: server.engine.num_running == 0, "all tokens are there")
    pieces = read_slowly(sock, 0)
    assert "".join(pieces) == (SCRIPT * 60).encode()[:3000].decode(errors="ignore")
    assert len(pieces) < 2000


def test_a_reader_that_never_reads_does_not_hold_the_others_up(make_server):
    server = make_server(FakeAsyncLLM(long_config()), send_buffer=4096)
    stuck = connect(server, receive_buffer=2048)
    body = {"prompt": "a", "max_tokens": 1000, "n": 8, "stream": True}
    send(stuck, "/v1/completions", body)
    reply = httpx.post(f"{server.url}/v1/completions", json={"prompt": "a", "max_tokens": 5})
    assert reply.json()["choices"][0]["text"] == SCRIPT[:5]
    stuck.close()
    wait_until(lambda: server.engine.num_running == 0, "the request has ended")


def test_a_connection_serves_one_request_after_another(server):
    with httpx.Client(base_url=server.url) as client:
        for stream in (True, False, True):
            body = {"prompt": "a", "max_tokens": 3, "stream": stream}
            assert client.post("/v1/completions", json=body).status_code == 200
        assert client.post("/v1/completions", content=b"{").status_code == 400
        assert client.get("/health").status_code == 200


def test_a_body_too_large_is_answered_although_it_is_still_being_sent(server):
    reply = httpx.post(f"{server.url}/v1/completions", content=b"x" * (40 << 20), timeout=60)
    assert reply.status_code == 413


def test_a_body_in_chunks(server):
    def parts():
        yield b'{"prompt": "a", '
        yield b'"max_tokens": 3}'

    reply = httpx.post(f"{server.url}/v1/completions", content=parts())
    assert reply.json()["choices"][0]["text"] == "The"


def head(*lines):
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


def request(**fields):
    data = json.dumps({"prompt": "a", "max_tokens": 3, **fields}).encode()
    return head("POST /v1/completions HTTP/1.1", "Host: x", f"Content-Length: {len(data)}") + data


def read_to_end(sock):
    received = b""
    while piece := sock.recv(65536):
        received += piece
    return received


@pytest.mark.parametrize("together", [False, True])
def test_a_request_sent_before_its_turn_is_not_answered(server, together):
    """The connection closes, so that the client knows that it has to send it again."""
    sock = connect(server)
    first = request(max_tokens=30, vllm_xargs={"sleep": 0.01})
    second = request(max_tokens=1)
    if together:
        sock.sendall(first + second * 3)
    else:
        sock.sendall(first)
        wait_until(lambda: server.engine.num_running, "the first one runs")
        sock.sendall(second)
    received = read_to_end(sock)
    assert received.count(b"HTTP/1.1 200") == 1
    assert b'"completion_tokens":30' in received


def test_a_client_that_leaves_is_noticed_although_it_sent_more(server):
    sock = connect(server)
    sock.sendall(request(**endless(vllm_xargs={"sleep": 0.2})) + request())
    wait_until(lambda: server.engine.num_running, "the request runs")
    sock.close()
    wait_until(lambda: server.engine.num_running == 0, "the request has ended")


ENDLESS_CHUNKED = head("POST /v1/completions HTTP/1.1", "Host: x", "Transfer-Encoding: chunked")


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"GET /health HTTP/1.1\r\nX: ", b"x" * 1024),
        (b"GET /health HTTP/1.1\r\n", b"X: y\r\n" * 128),
        (b"GET /", b"x" * 1024),
        (ENDLESS_CHUNKED, b"1;" + b"x" * 1021 + b"\r\na\r\n"),
        (ENDLESS_CHUNKED + b"0\r\n", b"X: y\r\n" * 128),
    ],
    ids=["header", "headers", "address", "frames", "trailers"],
)
def test_a_head_without_end_is_cut_off(server, begin, more):
    sock = connect(server)
    sock.sendall(begin)
    # What is still on its way when the server closes may reset the connection.
    with contextlib.suppress(ConnectionError):
        for _ in range(1 << 15):
            sock.sendall(more)
        raise AssertionError("it took 32 MiB, far more than buffers on the way hold")
    sock.close()


def test_a_large_body_is_no_large_head(server):
    prompt = "a" * 200_000
    reply = httpx.post(f"{server.url}/v1/completions", json={"prompt": prompt})
    assert "characters" in reply.json()["error"]["message"]
    parts = (bytes([byte]) for byte in json.dumps({"prompt": "a" * 3000}).encode())
    with httpx.Client(base_url=server.url) as client:
        for content in (parts, b"x" * 200_000, b"{}"):
            reply = client.post("/v1/completions", content=content)
            assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "begin", [b"", b"GET /hea", b"POST /v1/completions HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"]
)
def test_a_request_that_stands_still_ends_its_connection(server, monkeypatch, begin):
    monkeypatch.setattr(HTTPProtocol, "stand_still", 0.1)
    sock = connect(server)
    sock.sendall(begin)
    received = read_to_end(sock)
    assert received.startswith(b"HTTP/1.1 400") if begin else received == b""


def test_an_answer_may_take_longer_than_a_request(server, monkeypatch):
    monkeypatch.setattr(HTTPProtocol, "stand_still", 0.1)
    sock = connect(server)
    send(sock, "/v1/completions", endless(max_tokens=8, stream=True))
    text = "".join(read_slowly(sock, 0))
    assert text == SCRIPT[:8]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
def test_an_offer_of_another_protocol_is_passed_over(server, together, chunked):
    data = json.dumps({"prompt": "a", "max_tokens": 3}).encode()
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(data)}"
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
    begin = head("POST /v1/completions HTTP/1.1", "Host: x", *offer, framing)
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data) if chunked else data
    sock = connect(server)
    for part in [begin + body] if together else [begin, body[:5], body[5:]]:
        sock.sendall(part)
        time.sleep(0.05)
    sock.sendall(head("GET /version HTTP/1.1", "Host: x", "Connection: close"))
    received = read_to_end(sock)
    assert received.count(b"HTTP/1.1 200") == 2
    assert b'"text":"The"' in received
    assert b'"version"' in received


def test_head_requests(server):
    assert httpx.head(f"{server.url}/").status_code == 200
    assert httpx.head(f"{server.url}/health").status_code == 200
