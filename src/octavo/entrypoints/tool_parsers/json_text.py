"""Grammars of JSON values: copied as they are written, or read as a whole where they are short."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from octavo.entrypoints.tool_parsers.source import MAX_NAME, Source, Steps

Write = Callable[[str], None]

# Outside of strings JSON consists of these; anything else, and the characters that stand for
# special tokens, breaks it.
_OUTSIDE = re.compile(r"[\w\s:,.+\-]+", re.ASCII)
# No JSON text of a call holds a special token, which reads as half of a surrogate pair.
_INSIDE = re.compile('[^"\\\\\ud800-\udfff]+')
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORD = re.compile(r"[\w.+\-]+", re.ASCII)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_REPLACEMENT = "\ufffd"


def copy_container(source: Source, write: Write) -> Steps[bool]:
    """Write the object or list that begins at `source.at`, as it comes.

    False where the text stops being JSON, which is left unread, or ends.
    """
    depth = 0
    in_string = False
    escaped = False
    while True:
        text, at = source.text, source.at
        broken = False
        while at < len(text):
            if in_string:
                if escaped:
                    escaped = False
                    at += 1
                    continue
                run = _INSIDE.match(text, at)
                if run is not None:
                    at = run.end()
                    continue
                if text[at] not in '"\\':
                    broken = True
                    break
                escaped = text[at] == "\\"
                in_string = escaped
            elif text[at] == '"':
                in_string = True
            elif text[at] in "{[":
                depth += 1
            elif text[at] in "}]":
                depth -= 1
                if not depth:
                    at += 1
                    break
            else:
                run = _OUTSIDE.match(text, at)
                if run is None:
                    broken = True
                    break
                at = run.end()
                continue
            at += 1
        piece, source.at = text[source.at : at], at
        write(piece)
        if broken or not depth:
            return not broken
        if source.ended:
            return False
        yield


def copy_string(source: Source, write: Write) -> Steps[bool]:
    """Write what the JSON string stands for whose text begins at `source.at`, as it comes.

    The opening quote has been read. False where the text ends before the string does, or where a
    special token stands in it, which is left unread. Halves of surrogate pairs become U+FFFD.
    """
    high = ""  # the first half of a surrogate pair
    while True:
        text, at = source.text, source.at
        run = _INSIDE.match(text, at)
        if run is not None or (at < len(text) and text[at] != "\\"):
            if high:
                write(_REPLACEMENT)
                high = ""
            if run is None:
                source.at += text[at] == '"'
                return text[at] == '"'
            source.at = run.end()
            write(run.group())
            continue
        length = 6 if text[at + 1 : at + 2] == "u" else 2
        if at + length > len(text):
            if not source.ended:
                yield
                continue
            write((_REPLACEMENT if high else "") + text[at:])
            source.at = len(text)
            return False
        found = _unescape(text[at : at + length])
        source.at = at + length
        if high and "\udc00" <= found <= "\udfff":
            found = (high + found).encode("utf-16", "surrogatepass").decode("utf-16")
        elif high:
            write(_REPLACEMENT)
        high = found if "\ud800" <= found <= "\udbff" else ""
        if not high:
            write(_REPLACEMENT if "\udc00" <= found <= "\udfff" else found)


def _unescape(escape: str) -> str:
    r"""What a \-sequence stands for: one character, or itself if it is none of JSON's."""
    kind = escape[1:2]
    if kind == "u":
        return chr(int(escape[2:], 16)) if _HEX.fullmatch(escape[2:]) else escape
    return _ESCAPES.get(kind) or (kind if kind and kind in '"\\/' else escape)


def read_string(source: Source, most: int = MAX_NAME) -> Steps[str | None]:
    """The short JSON string that begins at `source.at`; None if there is none of `most` letters."""
    if not (yield from source.accept('"')):
        return None
    pieces: list[str] = []
    escaped = False
    while True:
        text, at = source.text, source.at
        end = min(len(text), at + most)
        most -= end - at
        while at < end:
            letter = text[at]
            if escaped:
                escaped = False
            elif letter == "\\":
                escaped = True
            elif letter == '"':
                pieces.append(text[source.at : at])
                source.at = at + 1
                return _decoded("".join(pieces))
            at += 1
        pieces.append(text[source.at : at])
        source.at = at
        if not most or source.ended:
            return None
        yield


def _decoded(raw: str) -> str | None:
    try:
        text = str(json.loads(f'"{raw}"', strict=False))
    except ValueError:
        return None
    return None if _SURROGATE.search(text) else text


def skip_value(source: Source) -> Steps[bool]:
    """Read over any JSON value; False if none begins here or it does not end."""
    first = yield from source.space()
    if first == '"':
        source.at += 1
        return (yield from copy_string(source, _ignore))
    if first and first in "{[":
        return (yield from copy_container(source, _ignore))
    return (yield from read_word(source)) != ""


def read_word(source: Source) -> Steps[str]:
    """The number or the name (true, false, null) that begins here; "" if there is none."""
    pieces: list[str] = []
    while True:
        match = _WORD.match(source.text, source.at)
        if match is not None:
            pieces.append(match.group())
            source.at = match.end()
        if source.at < len(source.text) or source.ended:
            return "".join(pieces)
        yield


def quoted(text: str) -> str:
    """`text` as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def escaped(text: str) -> str:
    """`text` as the inside of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _ignore(text: str) -> None:
    del text
