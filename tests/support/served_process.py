"""`octavo serve` in a process of its own."""

import contextlib
import re
import signal
import subprocess
import sys
import threading

import psutil

from support.http_server import wait_until


class ServedProcess:
    """A server process with its log; `url` is where it listens."""

    def __init__(self, *flags: str, env: dict[str, str] | None = None) -> None:
        words = [sys.executable, "-m", "octavo.cli.main", "serve", "--host", "127.0.0.1"]
        self.process = subprocess.Popen(
            [*words, *flags], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def url(self) -> str:
        """The address, once the server is ready; "" before."""
        for line in self.log:
            found = re.search(r"octavo is ready: chat at (\S+)/ ", line)
            if found:
                return found[1]
        return ""

    def wait_until_ready(self) -> None:
        wait_until(lambda: self.url or self.process.poll() is not None, "ready", timeout=120)
        assert self.url, "".join(self.log[-20:])

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it by a signal; its exit code."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self._reader.join(10)
        return code

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(iter(self.process.stderr.readline, ""))
