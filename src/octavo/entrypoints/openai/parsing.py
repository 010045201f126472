"""JSON bodies -> request Structs: fields are checked by name, faults are told in plain words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from octavo.entrypoints.openai.limits import check_structure
from octavo.entrypoints.openai.schema.common import RequestBody
from octavo.types.errors import RequestError
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

T = TypeVar("T", bound=RequestBody)

_MAX_NAMES = 8  # unknown fields named in one message
_MAX_NAME = 64  # characters of a field's name in a message
_MAX_REMEMBERED = 256  # unknown fields named in the log by one server
_INVALID = re.compile(r"(?P<what>.*) - at (?:`key` in )?`\$\.?(?P<path>.*)`", re.DOTALL)
_MISSING = re.compile(r"missing required field `(\w+)`")
_POSITION = re.compile(r"\(byte (\d+)\)")
_FIELD_BEFORE = re.compile(rb'"([^"\\]{1,64})"\s*:\s*"?[^"]{0,64}$')
_SURROGATE = re.compile(rb"\\u[dD]([89a-fA-F])[0-9a-fA-F]{2}")
_ESCAPE_LENGTH = 6  # of \\uXXXX
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class RequestParser:
    """Turns bodies into requests.

    Fields that nobody knows are ignored and named once in the log, or refused with
    `strict_fields`. Known fields that would change the answer and can't be honoured are refused,
    unless their value asks for nothing.
    """

    def __init__(self, strict_fields: bool) -> None:
        self._strict_fields = strict_fields
        self._named: set[str] = set()

    def fields(self, body: bytes) -> Mapping[str, msgspec.Raw]:
        """The top level of a body, its values unread. Raises RequestError."""
        try:
            check_structure(body)
            return _FIELDS.decode(body)
        except _FAULTS as error:
            raise _explain(body, error) from None

    def parse(self, body: bytes, kind: type[T]) -> T:
        """The request a body holds. Raises RequestError."""
        fields = self.fields(body)
        try:
            self._check(fields, kind)
            return msgspec.json.decode(body, type=kind)
        except _FAULTS as error:
            raise _explain(body, error) from None

    def _check(self, fields: Mapping[str, msgspec.Raw], kind: type[T]) -> None:
        unknown = []
        for name in fields.keys() - set(kind.__struct_fields__):
            if name in kind.refused:
                if msgspec.json.decode(fields[name]) not in kind.refused[name]:
                    why = kind.reasons.get(name, "")
                    raise RequestError(f"{name} is not supported by this server{why}", name)
            elif name not in kind.harmless:
                unknown.append(name[:_MAX_NAME])
        if not unknown:
            return
        unknown.sort()
        if self._strict_fields:
            names = ", ".join(repr(name) for name in unknown[:_MAX_NAMES])
            raise RequestError(f"unknown fields: {names}", unknown[0])
        for name in unknown[:_MAX_NAMES]:
            if name not in self._named and len(self._named) < _MAX_REMEMBERED:
                self._named.add(name)
                logger.warning("the request field %r is ignored: no endpoint knows it", name)


_FAULTS = (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _explain(body: bytes, error: Exception) -> RequestError:
    if isinstance(error, RecursionError):
        return RequestError("The body is nested too deep.")
    if isinstance(error, msgspec.ValidationError):
        return _invalid(error)
    return _malformed(body, error)


def _invalid(error: msgspec.ValidationError) -> RequestError:
    match = _INVALID.fullmatch(str(error))
    if match is None or not match.group("path"):
        what = match.group("what") if match else str(error)
        missing = _MISSING.search(what)
        param = missing.group(1) if missing else None
        return RequestError(f"The body is invalid: {_lower(what)}", param)
    what, path = match.group("what"), match.group("path")
    return RequestError(f"{path}: {_lower(what)}", path)


def _malformed(body: bytes, error: Exception) -> RequestError:
    position = _POSITION.search(str(error))
    if position is not None:
        at = int(position.group(1))
        if body[at : at + 8].startswith((b"NaN", b"Infinity")):
            name = _field_before(body, at)
            where = f"{name}: " if name else ""
            return RequestError(
                f"{where}NaN and Infinity are not numbers in JSON (byte {at})", name
            )
    at_surrogate = _lone_surrogate(body)
    if at_surrogate is not None:
        name = _field_before(body, at_surrogate)
        escape = body[at_surrogate : at_surrogate + _ESCAPE_LENGTH].decode()
        return RequestError(f"{escape} is half of a surrogate pair, not a character", name)
    return RequestError(f"The body is not valid JSON: {_lower(str(error))}")


def _lone_surrogate(body: bytes) -> int | None:
    """Where the first escaped half of a surrogate pair stands without the other half."""
    high_at: int | None = None
    for match in _SURROGATE.finditer(body):
        at = match.start()
        is_low = match.group(1) in b"cdefCDEF"
        if high_at is not None and not (is_low and at == high_at + _ESCAPE_LENGTH):
            return high_at
        if is_low and high_at is None:
            return at
        high_at = None if is_low else at
    return high_at


def _field_before(body: bytes, position: int) -> str | None:
    """The name of the field whose value begins at, or shortly before, `position`."""
    match = _FIELD_BEFORE.search(body[max(position - 192, 0) : position])
    name = match.group(1).decode(errors="replace") if match else ""
    return name if name.isidentifier() else None


def _lower(text: str) -> str:
    """The text as the middle of a sentence; words like JSON stay as they are."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
