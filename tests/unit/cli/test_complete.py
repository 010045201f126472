"""`octavo complete`: a text in a pipe, continued."""

import io

import pytest

from octavo.cli.main import main
from support.openai_stub import DONE, USAGE, chunk


@pytest.fixture(autouse=True)
def completions(stub):
    stub.events = [chunk(text=" a"), chunk(text=" time", finish="length"), USAGE, DONE]


@pytest.mark.parametrize(("flags", "text"), [([], " a time\n"), (["--echo"], "Once upon a time\n")])
def test_a_pipe_is_one_text(stub, monkeypatch, capsys, flags, text):
    monkeypatch.setattr("sys.stdin", io.StringIO("Once upon\n"))
    assert main(["complete", "--url", stub.url, *flags]) == 0
    assert capsys.readouterr().out == text
    (body,) = stub.bodies
    assert (body["prompt"], body["max_tokens"], body["stream"]) == ("Once upon", 256, True)


def test_quick(stub, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    words = ["complete", "--url", stub.url, "-q", "x", "--max-tokens", "3", "--temperature", "0"]
    assert main(words) == 0
    assert (stub.bodies[0]["max_tokens"], stub.bodies[0]["temperature"]) == (3, 0.0)
    assert main(["complete", "--url", stub.url]) == 2
