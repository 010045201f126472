"""Literals: values as Python writes them, or with marks for quotes, turned into JSON."""

from __future__ import annotations

import json
import re

from octavo.entrypoints.tool_parsers.source import Source, Steps

JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")

_DEEPEST = 64
_LONGEST_NUMBER = 64  # characters
_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[^\s,\[\]{}()=:'\"]+")
_LOOSE_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?")
_NAMES = {
    "true": "true",
    "True": "true",
    "false": "false",
    "False": "false",
    "null": "null",
    "None": "null",
}
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_STRING = re.compile(
    r"(?P<raw>[rR]?)(?P<quote>'''|\"\"\"|'|\")(?P<text>(?:[^\\]|\\.)*?)(?P=quote)", re.DOTALL
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)", re.DOTALL)
_LETTERS = dict(zip("abfnrtv\\'\"\n/", "\a\b\f\n\r\t\v\\'\"\0/", strict=True)) | {"\n": ""}
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def number(word: str) -> str | None:
    """The JSON of a number; None if it is none that JSON could hold."""
    if JSON_NUMBER.fullmatch(word):
        return word
    if len(word) > _LONGEST_NUMBER or not _LOOSE_NUMBER.fullmatch(word):
        return None
    try:
        value = float(word) if set(word) & set(".eE") else int(word)
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return None


def json_of_literal(text: str, fences: tuple[str, ...] = ()) -> str | None:
    """The JSON of one literal; None if it is none.

    Strings stand between quotes, with Python's escapes, or between two of one of `fences`,
    without escapes. Keys of objects may be bare. JSON itself is a literal too.
    """
    literal = _Literal(text, fences)
    try:
        literal.value(0)
    except ValueError:
        return None
    literal.space()
    return "".join(literal.json) if literal.at == len(text) else None


class _Literal:
    """One pass over a text; ValueError where it is no literal."""

    def __init__(self, text: str, fences: tuple[str, ...]) -> None:
        self.text = text
        self.at = 0
        self.json: list[str] = []
        self._fences = fences

    def space(self) -> str:
        """Read blanks; the character that follows, or ""."""
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.text[self.at : self.at + 1]

    def value(self, depth: int) -> None:
        """Any value."""
        first = self.space()
        closing = _CLOSING.get(first)
        if closing is not None:
            self._container(closing, depth + 1)
            return
        string = self._string()
        if string is not None:
            self.json.append(json.dumps(string, ensure_ascii=False))
            return
        word = self._word()
        written = _NAMES.get(word) or number(word)
        if written is None:
            raise ValueError(f"{word!r} is no literal")
        self.json.append(written)

    def _container(self, closing: str, depth: int) -> None:
        if depth > _DEEPEST:
            raise ValueError("nested too deep")
        self.at += 1
        self.json.append("{" if closing == "}" else "[")
        first = True
        while self.space() != closing:
            if not first:
                self._expect(",")
                if self.space() == closing:
                    break
                self.json.append(", ")
            first = False
            if closing == "}":
                self._key()
            self.value(depth)
        self.at += 1
        self.json.append("}" if closing == "}" else "]")

    def _key(self) -> None:
        key = self._string()
        if key is None:
            key = self._word()
        self.space()
        self._expect(":")
        self.json.append(json.dumps(key, ensure_ascii=False) + ": ")

    def _expect(self, character: str) -> None:
        if not self.text.startswith(character, self.at):
            raise ValueError(f"{character!r} is missing")
        self.at += 1

    def _word(self) -> str:
        match = _WORD.match(self.text, self.at)
        if match is None:
            raise ValueError("a value is missing")
        self.at = match.end()
        return match.group()

    def _string(self) -> str | None:
        for fence in self._fences:
            if self.text.startswith(fence, self.at):
                begin = self.at + len(fence)
                end = self.text.find(fence, begin)
                if end < 0:
                    raise ValueError("a string has no end")
                self.at = end + len(fence)
                return self.text[begin:end]
        match = _STRING.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        return match["text"] if match["raw"] else _unescaped(match["text"])


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    text = _ESCAPE.sub(_meaning, text)
    text = _SURROGATE_PAIR.sub(
        lambda pair: pair.group().encode("utf-16", "surrogatepass").decode("utf-16"), text
    )
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def _meaning(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "xuU" and len(code) > 1:
        value = int(code[1:], 16)
        return chr(value) if value <= 0x10FFFF else "\ufffd"
    if code[0] in "01234567":
        return chr(int(code, 8))
    return _LETTERS.get(code, match.group())


class LiteralSpan:
    """Finds where a value ends that arrives in pieces; one per syntax."""

    def __init__(self, fences: tuple[str, ...] = ()) -> None:
        self._fences = fences
        self._longest = max(3, *map(len, fences)) if fences else 3
        begins = "".join(re.escape(fence[0]) for fence in fences)
        special = "\ud800-\udfff"
        self._plain = re.compile(rf"[^,\[\](){{}}'\"{begins}{special}]+")
        self._inside = re.compile(rf"[^'\"\\{begins}{special}]+")

    def read(self, source: Source) -> Steps[str]:
        """The text of the value that begins here, up to the comma or bracket that ends it.

        Strings and brackets within it are passed over. A special token that is no fence ends it
        too, and so does the end of the text.
        """
        pieces: list[str] = []
        depth = 0
        quote = ""  # of the string that is open
        while True:
            at, depth, quote, found = self._scan(source, depth, quote)
            pieces.append(source.text[source.at : at])
            source.at = at
            if found or (source.ended and at == len(source.text)):
                return "".join(pieces)
            if not source.ended:
                yield

    def _scan(self, source: Source, depth: int, quote: str) -> tuple[int, int, str, bool]:
        """Read on as far as it is certain: (position, depth, open quote, whether it ended)."""
        text, at = source.text, source.at
        while at < len(text):
            run = (self._inside if quote else self._plain).match(text, at)
            if run is not None:
                at = run.end()
                continue
            letter = text[at]
            if self._undecided(text, at, quote) and not source.ended:
                break
            fence = next((fence for fence in self._fences if text.startswith(fence, at)), "")
            step = 1
            if "\ud800" <= letter <= "\udfff" and not fence:
                return at, depth, quote, True
            if quote:
                if letter == "\\" and quote not in self._fences:
                    step = 2
                elif text.startswith(quote, at):
                    step, quote = len(quote), ""
            elif fence:
                step, quote = len(fence), fence
            elif letter in "'\"":
                quote = letter * 3 if text.startswith(letter * 3, at) else letter
                step = len(quote)
            elif letter in "([{":
                depth += 1
            elif letter in ",)]}":
                if not depth:
                    return at, depth, quote, True
                depth -= letter != ","
            at += step
        return min(at, len(text)), depth, quote, False

    def _undecided(self, text: str, at: int, quote: str) -> bool:
        """Whether the text ends within something that is longer than one character."""
        rest = text[at : at + self._longest]
        wanted: tuple[str, ...]
        if quote:
            wanted = (quote,) if quote in self._fences else (quote, "\\?")
        else:
            wanted = (*self._fences, rest[0] * 3 if rest[0] in "'\"" else "")
        return any(len(rest) < len(one) and one[: len(rest)] == rest for one in wanted)
