"""Console: lines and blocks, styles on terminals only, nothing that steers a terminal."""

import io

import pytest

from octavo.cli import console as module
from octavo.cli.console import Console

DIM, PLAIN = "\x1b[2m", "\x1b[0m"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def streams(monkeypatch):
    """streams(terminal, *lines): stdin with these lines, and stdout, which is returned."""

    def make(terminal, *lines):
        kind = Terminal if terminal else io.StringIO
        out = kind()
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setattr("sys.stdin", kind("".join(f"{line}\n" for line in lines)))
        monkeypatch.setattr("sys.stdout", out)
        monkeypatch.setattr("sys.stderr", kind())
        return out

    return make


@pytest.mark.parametrize(
    ("lines", "texts"),
    [
        (["a", "b"], ["a", "b", None]),
        (["one\\", "two", "b"], ["one\ntwo", "b", None]),
        (['"""', "a", "", 'b"""', "c"], ["a\n\nb", "c", None]),
        (['"""a', '"""'], ["a", None]),
        (['"""a"""'], ["a", None]),
        (["one\\"], ["one", None]),
        ([""], ["", None]),
    ],
)
def test_what_a_person_writes(streams, lines, texts):
    streams(False, *lines)
    console = Console()
    assert [console.read("") for _ in texts] == texts


def test_reasoning_is_dim_and_apart(streams):
    out = streams(True)
    console = Console()
    for text, kind in [("hm ", "reasoning"), ("hm", "reasoning"), ("So", "answer")]:
        console.write(text, kind)
    console.end()
    assert out.getvalue() == f"{DIM}hm hm\n{PLAIN}So\n"


def test_an_answer_that_ends_within_reasoning_leaves_the_terminal_plain(streams):
    out = streams(True)
    console = Console()
    console.write("hm", "reasoning")
    console.end()
    assert out.getvalue() == f"{DIM}hm\n{PLAIN}"


def test_pipes_get_the_answer_only(streams):
    out = streams(False)
    console = Console()
    console.write("hm", "reasoning")
    console.write("So\x1b[31m")
    console.end()
    assert out.getvalue() == "So\x1b[31m\n"


def test_no_color(streams, monkeypatch):
    out = streams(True)
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console()
    console.write("hm", "reasoning")
    console.write("So")
    assert out.getvalue() == "So"


def test_a_model_can_not_steer_the_terminal(streams):
    out = streams(True)
    Console().write("a\x1b]0;title\x07b\r\n\tc\x9b2Jd")
    assert out.getvalue() == "a]0;titleb\n\tc2Jd"


def test_what_is_piped_in(streams):
    streams(False, "a", "b")
    assert Console().read_all() == "a\nb\n"
    streams(True, "a")
    console = Console()
    assert console.interactive
    assert console.read_all() == ""


def test_notes_go_to_stderr(streams, monkeypatch):
    out = streams(False)
    console = Console()
    console.write("a")
    console.note("b")
    assert out.getvalue() == "a\n"


def test_typed_lines_are_kept_for_their_owner_only(streams, tmp_path):
    streams(False)
    if module.readline is None:
        pytest.skip("this Python has no readline")
    history = tmp_path / "new" / "history"
    with Console().editing(history, ["/help"]):
        module.readline.clear_history()
        module.readline.add_history("asked before")
        assert module.readline.get_completer()("/he", 0) == "/help"
        assert module.readline.get_completer()("/he", 1) is None
        assert module.readline.get_completer()("", 0) is None
    assert history.stat().st_mode & 0o777 == 0o600
    assert "asked before" in history.read_text()
