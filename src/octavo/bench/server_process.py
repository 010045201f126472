"""ServerProcess: a server that a benchmark starts, waits for and ends."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from octavo.types.errors import ConfigError, OctavoError

_POLL_SECONDS = 0.1
_END_SECONDS = 30.0  # for a server to end by itself
_LAST_LINES = 20  # of the log, shown when it does not start


def octavo_server(values: Mapping[str, Any]) -> list[str]:
    """The command of an octavo server with these options, as they came from flags or a file."""
    words = ["-m", "octavo.cli.main", "serve", "--host", "127.0.0.1", "--port", "{port}"]
    for name, value in values.items():
        words += _flag(name, value)
    return [sys.executable, *words]


def _flag(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if value is None:
        return []
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    if isinstance(value, Mapping):
        return [flag, json.dumps(value)]
    if isinstance(value, list | tuple):
        return [flag, *map(str, value)]
    return [flag, str(value)]


class ServerProcess:
    """A server on a free port of this machine, from `with` to its end."""

    def __init__(
        self,
        command: Sequence[str] | str,
        ready_seconds: float = 600.0,
        *,
        follows_terminal: bool = True,
    ) -> None:
        """`command` has the word {port} where the port goes.

        Unless it `follows_terminal`, a Ctrl-C typed here does not reach the server.
        """
        words = shlex.split(command) if isinstance(command, str) else list(command)
        if not any("{port}" in word for word in words):
            raise ConfigError(f"the server's command {shlex.join(words)!r} lacks {{port}}")
        self._words = words
        self._ready_seconds = ready_seconds
        self._group = None if follows_terminal else 0
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.start_seconds = 0.0

    def __enter__(self) -> Self:
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        words = [word.replace("{port}", str(port)) for word in self._words]
        began = time.monotonic()
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            process_group=self._group,
        )
        try:
            self._wait_until_ready(began)
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.monotonic() - began
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server; safe to call twice."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _wait_until_ready(self, began: float) -> None:
        assert self._process is not None
        while not _answers(f"{self.url}/v1/models"):
            ended = self._process.poll() is not None
            if ended or time.monotonic() - began > self._ready_seconds:
                what = "ended early" if ended else f"is not ready after {self._ready_seconds:g} s"
                raise OctavoError(f"the server {what}; its log ends:\n{self._last_lines()}")
            time.sleep(_POLL_SECONDS)

    def _last_lines(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_LAST_LINES:])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        return error.code == 401  # it wants a key, so it is there
    except (OSError, urllib.error.URLError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
