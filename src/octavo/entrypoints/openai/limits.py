"""Bounds on what a client may send, each checked before work is spent on it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from starlette.types import Receive, Scope

from octavo.entrypoints.openai.errors import BodyTooLargeError
from octavo.types.errors import RequestError

MAX_BODY_BYTES = 32 << 20
INLINE_BODY_BYTES = 64 << 10  # larger bodies are parsed in a thread
MAX_NESTING = 64  # brackets in brackets
MAX_VALUES = 1 << 21  # commas outside strings, in one body
MAX_CONTAINERS = 1 << 17  # objects and arrays in one body
MAX_PROMPTS = 4096  # in one completion request
MAX_SEQUENCES = 16384  # prompts x n of one request

_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'",[]{}'))
_STRING = re.compile(rb'"[^"]*"')
_SLICE = 256 << 10  # bytes handled without letting go of the interpreter lock


class ClientGoneError(Exception):
    """The client left before its request was complete: there is nobody to answer."""


async def read_body(scope: Scope, receive: Receive, limit: int = MAX_BODY_BYTES) -> bytes:
    """The request's body.

    A body above the limit is read on and dropped, up to as much again, because a client that is
    still sending would not see the answer. Raises BodyTooLargeError, ClientGoneError.
    """
    if _content_length(scope) > 2 * limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunk = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        elif size > 2 * limit:
            raise _too_large(limit)
        else:
            chunks.clear()
    if size > limit:
        raise _too_large(limit)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def check_structure(body: bytes) -> None:
    """Refuse JSON text that would take a parser long, or too deep, without parsing it.

    Runs at memory speed: everything but brackets, commas and quotes is dropped, then the strings,
    then the innermost brackets again and again. Text that is not JSON may pass: the parser has
    the last word on it. Raises RequestError.
    """
    if body.count(b"[") + body.count(b"{") <= MAX_NESTING and body.count(b",") <= MAX_VALUES:
        return
    if b"\\" in body:  # an escaped quote does not end a string
        body = body.replace(rb"\\", b"").replace(rb"\"", b"")
    skeleton = b"".join(_without_strings(body.translate(_BRACKETS, _NOT_STRUCTURE)))
    if skeleton.count(b",") > MAX_VALUES:
        raise RequestError(f"The body holds more than {MAX_VALUES} values; send less at once.")
    brackets = skeleton.translate(None, b",")
    if brackets.count(b"[") > MAX_CONTAINERS:
        raise RequestError(f"The body holds more than {MAX_CONTAINERS} objects and arrays.")
    for _ in range(MAX_NESTING):
        peeled = brackets.replace(b"[]", b"")
        if len(peeled) == len(brackets):
            break
        brackets = peeled
    if b"[]" in brackets or brackets.count(b"[") > MAX_NESTING:
        raise RequestError(f"The body is nested more than {MAX_NESTING} levels deep.")


def _without_strings(skeleton: bytes) -> Iterator[bytes]:
    """Brackets and commas outside strings.

    Two quotes in a row can go first: that changes for no other byte whether it is in a string.
    """
    skeleton = skeleton.replace(b'""', b"")
    in_string = False
    for start in range(0, len(skeleton), _SLICE):
        part = skeleton[start : start + _SLICE]
        if in_string:
            part = b'"' + part
        part = _STRING.sub(b"", part)
        part, quote, _ = part.partition(b'"')
        in_string = bool(quote)
        yield part


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"The request body is larger than {limit} bytes; send less at once.")
