"""Errors that users and clients see, each with the field at fault and the way out."""

from __future__ import annotations


class OctavoError(Exception):
    """Base of every error octavo raises on purpose."""


class ConfigError(OctavoError, ValueError):
    """A start-up option is wrong or a combination is refused; the message names the remedy."""


class RequestError(OctavoError, ValueError):
    """A request that can't be served as asked (HTTP 400).

    `param` is the request field at fault, as the client spelled it, or None.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class NotFoundError(OctavoError, LookupError):
    """The named model or object does not exist (HTTP 404)."""


class MissingError(OctavoError, LookupError):
    """What a request refers to does not exist (HTTP 404); `param` is the field that names it."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class QueueFullError(OctavoError):
    """The waiting queue is at its limit (HTTP 503 with Retry-After)."""


class GenerationError(OctavoError, RuntimeError):
    """One request failed while it ran; other requests are not affected (HTTP 500).

    With `param`, the field of the request that is the cause, it is HTTP 400.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class EngineDeadError(OctavoError, RuntimeError):
    """The engine core has died; every pending and later call gets this error."""


class CheckpointError(OctavoError, ValueError):
    """A model folder or weight file is missing something or holds what the model can't take."""


class EngineStartError(OctavoError, RuntimeError):
    """The engine core did not become ready; the message names the cause."""


class EngineStalledError(EngineDeadError):
    """The engine core lives, but its step has run for longer than OCTAVO_STALL_TIMEOUT_S."""
