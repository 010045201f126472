"""Progress bars: on terminals only."""

import io
import sys
import threading

from octavo.utils.progress import byte_progress


class Terminal(io.StringIO):
    """Standard error that is a terminal."""

    def isatty(self):
        return True


def run(monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    with byte_progress("weights", 4000, initial=1000) as advance:
        threads = [threading.Thread(target=advance, args=(1000,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return stream.getvalue()


def test_on_a_terminal(monkeypatch):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    last = run(monkeypatch, Terminal()).strip().rpartition("\r")[2]
    assert "weights: 100%" in last
    assert "4.00k/4.00k" in last


def test_elsewhere(monkeypatch):
    assert run(monkeypatch, io.StringIO()) == ""
