"""Loggers: one format, quiet libraries, JSON lines on request, messages said once."""

from __future__ import annotations

import functools
import json
import logging
import sys

from octavo.utils import envs

_FORMAT = "%(levelname)s %(asctime)s [%(name)s] %(message)s"


class _JsonFormatter(logging.Formatter):
    """One object per line; `extra={"fields": {...}}` of a call adds to it."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "level": record.levelname,
            "time": self.formatTime(record),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


@functools.cache
def _root() -> logging.Logger:
    root = logging.getLogger("octavo")
    handler = logging.StreamHandler(sys.stderr)
    formatter = _JsonFormatter() if envs.logging_json() else logging.Formatter(_FORMAT)
    formatter.datefmt = "%m-%d %H:%M:%S"
    handler.setFormatter(formatter)
    root.addHandler(handler)
    root.setLevel(envs.logging_level())
    root.propagate = False
    return root


def get_logger(name: str) -> logging.Logger:
    """The logger of a module (`get_logger(__name__)`)."""
    _root()
    return logging.getLogger(name)


@functools.cache
def warn_once(logger: logging.Logger, message: str) -> None:
    """Log a warning the first time it is given."""
    logger.warning(message)
