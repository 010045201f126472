"""`octavo chat`: pipes, commands, and what Ctrl-C ends."""

import io
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from octavo.cli.chat import COMMANDS, Chat, ChatOptions
from octavo.cli.console import Console
from octavo.cli.main import main
from octavo.cli.server_client import ServerClient
from octavo.types.errors import OctavoError
from support.openai_stub import DONE, SLOWLY, chunk


@pytest.fixture
def piped(monkeypatch):
    def pipe(text):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))

    return pipe


@pytest.fixture
def chat(stub, piped):
    piped("")
    return Chat(ServerClient(stub.url), "small", ChatOptions(), Console())


def asked(stub):
    return [m["content"] for m in stub.bodies[-1]["messages"]]


def test_a_pipe_is_one_message(stub, piped, capsys):
    piped("hi\n")
    words = ["chat", "--url", stub.url, "--system-prompt", "be brief", "--temperature", "0.5"]
    assert main([*words, "--max-tokens", "9", "--top-p", "0.9"]) == 0
    assert capsys.readouterr().out == "Hi there\n"
    (body,) = stub.bodies
    assert body["model"] == "small"
    assert asked(stub) == ["be brief", "hi"]
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.5, 0.9, 9)


def test_quick_is_about_what_is_piped_in(stub, piped):
    piped("a text\n")
    assert main(["chat", "large", "--url", stub.url, "-q", "Summarize"]) == 0
    assert asked(stub) == ["Summarize\n\na text"]
    assert stub.bodies[0]["model"] == "large"
    assert "temperature" not in stub.bodies[0]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "there is nothing to ask: pipe a text in"),
        (["-q", "x", "--model-name", "none"], "has no model 'none'; there are small, large"),
        (["-q", "x", "--max-model-len", "9"], "--max-model-len is for a server that is started"),
        (["-q", "x", "--temperature", "-1"], "temperature=-1"),
        (["-q", "x", "--tempratur", "1"], "unknown flag --tempratur; did you mean --temperature"),
    ],
)
def test_wrong_use_is_one_line(stub, piped, capsys, words, line):
    piped("")
    assert main(["chat", "--url", stub.url, *words]) in (1, 2)
    captured = capsys.readouterr()
    assert line in captured.err.splitlines()[-1]
    assert captured.out == ""


def test_a_failed_request_is_an_exit_code(stub, piped, capsys):
    piped("hi")
    stub.events = [chunk({"content": "H"}), {"error": {"message": "died"}}, DONE]
    assert main(["chat", "--url", stub.url]) == 1
    captured = capsys.readouterr()
    assert captured.out == "H\n"
    assert captured.err.endswith("octavo chat: error: died\n")


def test_no_server_at_the_default_address_starts_one(stub, piped, monkeypatch, capsys):
    started = []

    class Server:
        def __init__(self, command, **options):
            started.append((command, options))
            self.url = stub.url

        def __enter__(self):
            return self

        def __exit__(self, *args):
            started.append("ended")

    monkeypatch.setattr("octavo.cli.client_options.ServerProcess", Server)
    monkeypatch.setattr("octavo.cli.client_options.DEFAULT_URL", "http://127.0.0.1:1")
    piped("hi")
    assert main(["chat"]) == 0
    piped("hi")
    assert main(["chat", "large", "--max-num-seqs", "2"]) == 0
    (plain, options), ended, (chosen, _), _ = started
    assert (options, ended) == ({"follows_terminal": False}, "ended")
    assert plain[-2:] == ["--port", "{port}"]
    assert chosen[-4:] == ["--max-num-seqs", "2", "--model", "large"]
    assert "starting a server with large" in capsys.readouterr().err
    monkeypatch.setattr("octavo.cli.client_options.DEFAULT_URL", stub.url)
    piped("hi")
    assert main(["chat"]) == 0
    assert len(started) == 4


def test_the_history_is_sent(chat, stub):
    chat.ask("one")
    chat.ask("two")
    assert asked(stub) == ["one", "Hi there", "two"]


def test_a_failed_message_is_forgotten(chat, stub):
    chat.ask("one")
    stub.refusal = (400, '{"error": {"message": "too long"}}')
    with pytest.raises(OctavoError, match="too long"):
        chat.ask("much")
    assert [m["content"] for m in chat.conversation.messages()] == ["one", "Hi there"]


def lines(chat, *texts):
    for text in texts:
        chat._take(text)


def test_commands(chat, stub, capsys, tmp_path):
    file = tmp_path / "talk.json"
    lines(chat, "one", "/system be brief", "two", "/undo", "/retry", f"/save {file}")
    assert asked(stub) == ["be brief", "one"]
    lines(chat, "/new", "three")
    assert asked(stub) == ["be brief", "three"]
    lines(chat, f"/load {file}", "/system -", "/set temperature 0", "/set max_tokens 4k", "four")
    assert asked(stub) == ["one", "Hi there", "four"]
    assert (stub.bodies[-1]["temperature"], stub.bodies[-1]["max_tokens"]) == (0.0, 4000)
    lines(chat, "/set temperature -", "/model large", "five", "/stats", "/help")
    assert stub.bodies[-1]["model"] == "large"
    assert "temperature" not in stub.bodies[-1]
    notes = capsys.readouterr().err
    assert "7 tokens in, 3 out" in notes
    assert "* large" in notes
    assert all(f"/{name}" in notes for name in COMMANDS)
    assert chat._take("") is True
    assert chat._take("/quit") is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/sett x", "unknown command /sett; did you mean /set?"),
        ("/set tempratur 1", "unknown setting 'tempratur'"),
        ("/set temperature hot", "temperature='hot'"),
        ("/set top_p", "write /set NAME VALUE"),
        ("/model none", "unknown model 'none'"),
        ("/retry", "nothing was said yet"),
        ("/save", "which file"),
    ],
)
def test_wrong_commands(chat, text, message):
    with pytest.raises(OctavoError, match=message.replace("?", r"\?")):
        chat._take(text)


class Person:
    """Somebody at a terminal."""

    def __init__(self, *words, cache):
        env = {**os.environ, "TERM": "xterm", "OCTAVO_CACHE_ROOT": str(cache)}
        env["PYTHONPATH"] = os.pathsep.join(sys.path)
        self.terminal, other = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "octavo.cli.main", *words],
            stdin=other, stdout=other, stderr=other, env=env, close_fds=True,
            # A shell's background jobs, which the tests may be, ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        os.close(other)
        self.seen = ""

    def types(self, text):
        os.write(self.terminal, text.encode())

    def sees(self, text):
        """Wait until it has come, and forget what came before."""
        end = time.monotonic() + 20
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self.terminal], [], [], 0.1)[0]:
                self.seen += os.read(self.terminal, 65536).decode()
        self.seen = self.seen.partition(text)[2]

    def leaves(self):
        self.types("\x04")
        code = self.process.wait(20)
        os.close(self.terminal)
        return code


def test_a_person_at_a_terminal(stub, tmp_path):
    person = Person("chat", "--url", stub.url, cache=tmp_path)
    person.sees("small at http://")
    person.sees(">>> ")
    stub.events = [chunk({"reasoning": "hm"}), chunk({"content": "So"}), DONE]
    person.types("one\n")
    person.sees("\x1b[2mhm")
    person.sees("\x1b[0mSo")
    person.sees(">>> ")
    stub.events = [SLOWLY]
    person.types("two\n")
    person.sees("...")
    person.process.send_signal(signal.SIGINT)
    person.sees("(stopped)")
    assert stub.left_early.wait(10)
    person.sees(">>> ")
    person.process.send_signal(signal.SIGINT)
    person.sees("/quit leaves")
    stub.events = [chunk({"content": "Yes"}), DONE]
    person.types("three\n")
    person.sees("Yes")
    person.sees(">>> ")
    assert person.leaves() == 0
    roles = [m["role"] for m in stub.bodies[-1]["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    assert set(stub.bodies[-1]["messages"][3]["content"]) == {"."}
    assert "three" in (tmp_path / "chat_history").read_text()
