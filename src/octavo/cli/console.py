"""Console: lines from a person or a pipe, and text to a terminal or a file."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from octavo.utils import envs

try:
    import readline
except ImportError:  # some builds of Python leave it out: lines can then be typed, not edited
    readline = None  # type: ignore[assignment]

BLOCK_MARK = '"""'

_MAX_HISTORY = 1000  # lines kept
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
# A model may write any character; those that steer a terminal are not for it to send.
_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)]) | {9: "\t", 10: "\n"}


class Console:
    """Standard input and output of a command that asks and answers.

    `interactive`: a person types at a terminal; otherwise all of stdin is one text.
    """

    def __init__(self) -> None:
        self.interactive = sys.stdin.isatty() and sys.stdout.isatty()
        self._dims = _takes_styles(sys.stdout)
        self._kind = "answer"
        self._at_line_start = True

    def read_all(self) -> str:
        """What is piped in; "" if stdin is a terminal."""
        return "" if sys.stdin.isatty() else sys.stdin.read()

    def read(self, prompt: str) -> str | None:
        '''What a person writes: a line, lines that end in a backslash, or lines within """.

        None at the end of input. KeyboardInterrupt comes through.
        '''
        lines = []
        try:
            line = input(prompt)
            if line.strip().startswith(BLOCK_MARK):
                return self._read_block(line.strip().removeprefix(BLOCK_MARK))
            while line.endswith("\\"):
                lines.append(line[:-1])
                line = input("... ")
        except EOFError:
            return "\n".join(lines) or None
        return "\n".join([*lines, line])

    def write(self, text: str, kind: str = "answer") -> None:
        """Text of a model; "reasoning" is dim on a terminal, and does not go to files or pipes."""
        if kind == "reasoning" and not self._dims:
            return
        if kind != self._kind:
            self._change_kind(kind)
        if self._dims:
            text = text.translate(_CONTROLS)
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._at_line_start = text.endswith("\n")

    def end(self) -> None:
        """End the line and the style of what was written."""
        if self._kind == "reasoning":
            self._change_kind("answer")
        if not self._at_line_start:
            sys.stdout.write("\n")
        self._at_line_start = True
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """A remark about the answer, which is no part of it."""
        self.end()
        style, plain = (_DIM, _PLAIN) if _takes_styles(sys.stderr) else ("", "")
        print(f"{style}{text}{plain}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def editing(self, history: Path, words: Sequence[str]) -> Iterator[None]:
        """Lines can be edited and recalled, `words` completed by Tab; the lines are kept.

        `history` is made readable to its owner only. Without readline nothing of this happens.
        """
        if readline is None:
            yield
            return
        with contextlib.suppress(OSError):
            readline.read_history_file(history)
        readline.set_completer_delims("")
        readline.set_completer(lambda start, number: _match(words, start, number))
        # macOS has libedit in readline's place, with commands of its own.
        libedit = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
        readline.set_auto_history(True)
        try:
            yield
        finally:
            readline.set_history_length(_MAX_HISTORY)
            with contextlib.suppress(OSError):
                history.parent.mkdir(parents=True, exist_ok=True)
                history.touch(mode=0o600)
                readline.write_history_file(history)

    def _read_block(self, first: str) -> str:
        lines = [first]
        while not lines[-1].rstrip().endswith(BLOCK_MARK):
            lines.append(input("... "))
        lines[-1] = lines[-1].rstrip().removesuffix(BLOCK_MARK)
        return "\n".join(lines).strip("\n")

    def _change_kind(self, kind: str) -> None:
        """Reasoning and answer stand on lines of their own."""
        if not self._at_line_start:
            sys.stdout.write("\n")
            self._at_line_start = True
        sys.stdout.write(_DIM if kind == "reasoning" else _PLAIN)
        self._kind = kind


def _takes_styles(stream: TextIO) -> bool:
    return stream.isatty() and not envs.plain_output()


def _match(words: Sequence[str], start: str, number: int) -> str | None:
    found = [word for word in words if start and word.startswith(start)]
    return found[number] if number < len(found) else None
