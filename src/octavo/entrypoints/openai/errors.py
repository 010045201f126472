"""Exceptions -> OpenAI error bodies, without anything about the server's insides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from starlette.exceptions import HTTPException

from octavo.types.errors import (
    EngineDeadError,
    GenerationError,
    MissingError,
    NotFoundError,
    OctavoError,
    QueueFullError,
    RequestError,
)
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

_RETRY_AFTER = "1"  # seconds; a queue slot frees with the next finished request
_ABSOLUTE_PATH = re.compile(r"(?<![\w./:])/(?:[^\s/'\"]+/)+([^\s/'\"]+)")

_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    413: "BadRequestError",
    503: "ServiceUnavailableError",
}


class BodyTooLargeError(OctavoError):
    """The request body is above the size limit (HTTP 413)."""


class ServerStoppingError(OctavoError):
    """The server is shutting down and ends what is left (HTTP 503)."""


class ErrorDetail(msgspec.Struct):
    """What went wrong; `param` is the request field at fault."""

    message: str
    type: str
    param: str | None
    code: int


class ErrorBody(msgspec.Struct):
    """The body of every answer that is not a success."""

    error: ErrorDetail


class Failure(msgspec.Struct, frozen=True):
    """An error as it goes to the client."""

    status: int
    detail: ErrorDetail
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def body(self) -> bytes:
        """The JSON body."""
        return msgspec.json.encode(ErrorBody(self.detail))


def failure(
    status: int,
    message: str,
    param: str | None = None,
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> Failure:
    """A Failure with the type that belongs to the status."""
    kind = _TYPES.get(status, "InternalServerError" if status >= 500 else "BadRequestError")
    return Failure(status, ErrorDetail(message, kind, param, status), headers)


def describe(error: Exception, request_id: str) -> Failure:
    """What the client gets to know of an error; the log gets one line about it, with the id.

    The line tells what went wrong and what helps. What clients did wrong may quote them, so of
    that only the field is logged.
    """
    found, remedy = _describe(error, request_id)
    _log(found, request_id, error, remedy)
    return found


def _describe(error: Exception, request_id: str) -> tuple[Failure, str]:
    """(what the client gets, what helps)."""
    headers: tuple[tuple[bytes, bytes], ...]
    match error:
        case RequestError():
            return failure(400, str(error), error.param), ""
        case NotFoundError():
            return failure(404, str(error), "model"), ""
        case MissingError():
            return failure(404, str(error), error.param), ""
        case BodyTooLargeError():
            return failure(413, str(error), headers=((b"connection", b"close"),)), ""
        case QueueFullError():
            headers = ((b"retry-after", _RETRY_AFTER.encode()),)
            remedy = "raise --max-waiting-requests or send less"
            return failure(503, str(error), headers=headers), remedy
        case ServerStoppingError():
            headers = ((b"retry-after", _RETRY_AFTER.encode()), (b"connection", b"close"))
            return failure(503, str(error), headers=headers), "send it to another server"
        case EngineDeadError():
            told = "The engine has stopped; the server's log has the cause."
            return failure(503, told), "the cause is above; start the server again"
        case GenerationError() if error.param is not None:
            return failure(400, str(error), error.param), ""
        case GenerationError():
            told = without_paths(str(error))
            return failure(500, told), "other requests are not affected; send this one again"
        case HTTPException():
            phrase = error.detail or HTTPStatus(error.status_code).phrase
            pairs = (error.headers or {}).items()
            headers = tuple((k.lower().encode(), v.encode()) for k, v in pairs)
            return failure(error.status_code, phrase, headers=headers), ""
    told = f"Internal error; look for {request_id} in the server's log."
    return failure(500, told), "please report it with these lines"


def _log(found: Failure, request_id: str, error: Exception, remedy: str) -> None:
    fields = {
        "request_id": request_id,
        "status": found.status,
        "type": found.detail.type,
        "param": found.detail.param,
    }
    words = f"request {request_id}: {found.status} {found.detail.type}"
    if found.detail.param:
        words += f", field {found.detail.param}"
    if found.status < 500:
        logger.info("%s", words, extra={"fields": fields})
        return
    fields |= {"cause": f"{type(error).__name__}: {error}", "remedy": remedy}
    unexpected = not isinstance(error, OctavoError | HTTPException)
    logger.error(
        "%s: %s (%s)",
        words,
        error,
        remedy,
        extra={"fields": fields},
        exc_info=error if unexpected else None,
    )


def in_client_words(error: RequestError, names: Mapping[str, str]) -> RequestError:
    """The error with the engine's names replaced by the fields that the client sent.

    A name without an underscore is a word of the language too: it is replaced as `param` only.
    """
    text = str(error)
    for name, field in names.items():
        if "_" in name:
            text = re.sub(rf"\b{re.escape(name)}\b", field, text)
    return RequestError(text, names.get(error.param or "", error.param))


def without_paths(text: str) -> str:
    """The text with absolute paths cut down to their last part."""
    return _ABSOLUTE_PATH.sub(r"\1", text)
