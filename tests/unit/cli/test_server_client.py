"""ServerClient: streams, and what is said of servers that are wrong."""

import json
import socket

import pytest

from octavo.cli.server_client import Answer, NoServerError, Piece, ServerClient
from octavo.types.errors import ConfigError, OctavoError
from support.openai_stub import DONE, SLOWLY, USAGE, chunk

PATH = "/v1/chat/completions"


def ask(client, **body):
    answer = Answer()
    return list(client.stream(PATH, {"model": "small", **body}, answer)), answer


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_models(stub, suffix):
    client = ServerClient(stub.url + suffix)
    assert client.models() == ["small", "large"]
    assert ServerClient(stub.url.removeprefix("http://")).models() == ["small", "large"]


def test_an_answer_in_pieces(stub):
    pieces, answer = ask(ServerClient(stub.url, "key"), temperature=0)
    assert pieces == [Piece("answer", "Hi"), Piece("answer", " there")]
    assert (answer.text, answer.finish_reason) == ("Hi there", "stop")
    assert (answer.prompt_tokens, answer.output_tokens) == (7, 3)
    assert answer.figures().startswith("7 tokens in, 3 out; first after")
    (body,) = stub.bodies
    assert body["stream"] is True
    assert body["temperature"] == 0
    assert stub.headers[0]["Authorization"] == "Bearer key"


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_no_part_of_the_answer(stub, name):
    stub.events = [chunk({name: "hm"}), chunk({"content": "so"}), chunk({"role": "x"}), DONE]
    pieces, answer = ask(ServerClient(stub.url))
    assert pieces == [Piece("reasoning", "hm"), Piece("answer", "so")]
    assert answer.text == "so"


def test_completions_have_text(stub):
    stub.events = [chunk(text="a"), chunk(text="", finish="length"), USAGE, DONE]
    pieces, answer = ask(ServerClient(stub.url))
    assert pieces == [Piece("answer", "a")]
    assert answer.finish_reason == "length"


def test_closing_leaves_the_server(stub):
    stub.events = [SLOWLY]
    pieces = ServerClient(stub.url).stream(PATH, {}, Answer())
    next(pieces)
    pieces.close()
    assert stub.left_early.wait(10)


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([chunk({"content": "a"})], "closed the connection in the middle"),
        ([{"error": {"message": "out of memory"}}, DONE], "^out of memory"),
        (["{"], "can't be read"),
    ],
)
def test_streams_that_fail(stub, events, text):
    stub.events = events
    with pytest.raises(OctavoError, match=text):
        ask(ServerClient(stub.url))


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (400, json.dumps({"error": {"message": "too long"}}), "says 400: too long$"),
        (401, json.dumps({"error": {"message": "no key"}}), "401: no key .--api-key or OCTAVO"),
        (502, "<html>bad gateway", "says 502: <html>bad gateway"),
        (500, "", "says 500: Internal Server Error"),
    ],
)
def test_refusals(stub, status, body, text):
    stub.refusal = (status, body)
    client = ServerClient(stub.url)
    with pytest.raises(OctavoError, match=text):
        ask(client)
    with pytest.raises(OctavoError, match=text):
        client.models()


def test_something_else_that_speaks_http(stub):
    stub.refusal = (200, "hello")
    with pytest.raises(OctavoError, match="is no such server"):
        ServerClient(stub.url).models()


def test_nobody_there():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        client = ServerClient(f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(NoServerError, match="no server answers at"):
            client.models()


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:99999", ""])
def test_wrong_addresses(url):
    with pytest.raises(ConfigError, match="is no address of a server"):
        ServerClient(url)


def test_proxies_are_not_for_this_machine(stub, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert ServerClient(stub.url).models() == ["small", "large"]
