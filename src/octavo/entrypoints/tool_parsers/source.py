"""Source: text that arrives in pieces, read by grammars that wait for more where they must."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

T = TypeVar("T")

# A part of a grammar. It yields when it needs more text, and returns what it found.
Steps = Generator[None, None, T]

_SPACE = re.compile(r"\s*")
MAX_NAME = 256  # characters of a tool's or a parameter's name


class Markers:
    """Texts to look for, none of which begins another one."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.texts = texts
        for text in texts:
            if any(other != text and other.startswith(text) for other in texts):
                raise ValueError(f"the marker {text!r} begins another one of {texts}")
        self.longest = max(map(len, texts), default=0)
        # No marker: a pattern that never matches.
        self._whole = re.compile("|".join(map(re.escape, texts)) or r"(?!)")
        self._begun = re.compile(f"(?:{'|'.join(map(_beginnings, texts)) or '(?!)'})\\Z")

    def search(self, text: str, start: int, room: int = sys.maxsize) -> re.Match[str] | None:
        """The first marker that begins within `room` characters from `start`."""
        return self._whole.search(text, start, min(start + room + self.longest, len(text)))

    def begun(self, text: str, start: int) -> int:
        """How many characters at the end of text[start:] may be the beginning of a marker."""
        match = self._begun.search(text, max(start, len(text) - self.longest + 1))
        return 0 if match is None else len(text) - match.start()


@functools.lru_cache(maxsize=256)
def _markers(texts: tuple[str, ...]) -> Markers:
    return Markers(texts)


def markers(texts: Iterable[str]) -> Markers:
    """The markers of these texts; equal sets are compiled once."""
    return _markers(tuple(dict.fromkeys(texts)))


def _beginnings(text: str) -> str:
    """A pattern of every proper beginning of `text` but the empty one."""
    pattern = ""
    for character in reversed(text[:-1]):
        pattern = re.escape(character) + (f"(?:{pattern})?" if pattern else "")
    return pattern or "(?!)"


class Source:
    """The text of one answer.

    `text[at:]` has not been read. Text that was read and not claimed is kept: if what looked like
    a tool call turns out to be none, it is taken back as `unclaimed`. A grammar reads on to the
    end of what there is, save the beginning of a marker; so a piece costs work in proportion to
    its own length, however long the answer is.
    """

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False
        self.truncated = False  # it ended before the model was done
        self._claimed = 0  # text[:_claimed] is nobody's concern any more
        self._tape: list[str] = []  # unclaimed text that came before `text`

    def push(self, piece: str) -> None:
        """Add text at the end."""
        if self._claimed < self.at:
            self._tape.append(self.text[self._claimed : self.at])
        self.text = self.text[self.at :] + piece
        self.at = self._claimed = 0

    def end(self, truncated: bool) -> None:
        """No text follows."""
        self.ended, self.truncated = True, truncated

    def claim(self) -> None:
        """What was read so far has found its place."""
        if self._tape:
            self._tape.clear()
        self._claimed = self.at

    def unclaimed(self) -> str:
        """What was read and not claimed; it is claimed by this."""
        self._tape.append(self.text[self._claimed : self.at])
        text = "".join(self._tape)
        self.claim()
        return text

    def space(self) -> Steps[str]:
        """Read blanks; returns the character that follows them, "" at the end."""
        while True:
            match = _SPACE.match(self.text, self.at)
            if match is not None:
                self.at = match.end()
            if self.at < len(self.text):
                return self.text[self.at]
            if self.ended:
                return ""
            yield

    def peek(self) -> Steps[str]:
        """The next character, unread; "" at the end."""
        while self.at >= len(self.text):
            if self.ended:
                return ""
            yield
        return self.text[self.at]

    def accept(self, wanted: str) -> Steps[bool]:
        """Read `wanted` if that is what follows; else read nothing."""
        while True:
            have = self.text[self.at : self.at + len(wanted)]
            if have == wanted:
                self.at += len(wanted)
                return True
            if self.ended or not wanted.startswith(have):
                return False
            yield

    def comes(self, stops: Markers) -> Steps[bool]:
        """Whether a marker comes next; nothing is read."""
        for text in stops.texts:
            if (yield from self.accept(text)):
                self.at -= len(text)
                return True
        return False

    def until(self, stops: Markers, most: int) -> Steps[tuple[str, str | None]]:
        """Read up to a marker and over it: (the text before it, the marker).

        The marker is None where the text ends, or where it has `most` characters without one.
        """
        pieces: list[str] = []
        room = most
        while True:
            match = stops.search(self.text, self.at, room)
            begun = 0 if self.ended or match is not None else stops.begun(self.text, self.at)
            end = len(self.text) - begun if match is None else match.start()
            over = end - self.at > room
            end = self.at + room if over else end
            pieces.append(self.text[self.at : end])
            room -= end - self.at
            self.at = end
            if match is not None and not over:
                self.at = match.end()
                return "".join(pieces), match.group()
            if over or self.ended:
                return "".join(pieces), None
            yield

    def copy_until(self, stops: Markers, write: Callable[[str], None]) -> Steps[str | None]:
        """Write text as it comes, up to a marker, and read over that; None at the end.

        All text but the marker is claimed.
        """
        while True:
            match = stops.search(self.text, self.at)
            begun = 0 if self.ended or match is not None else stops.begun(self.text, self.at)
            end = len(self.text) - begun if match is None else match.start()
            if end > self.at:
                write(self.text[self.at : end])
                self.at = end
            self.claim()
            if match is not None:
                self.at = match.end()
                return match.group()
            if self.ended:
                return None
            yield
