"""run_api_processes(): one engine core, several processes that answer HTTP on one address."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from socket import socket

import msgspec
import uvloop

from octavo.config.octavo_config import OctavoConfig
from octavo.config.server import ServerArgs
from octavo.engine.core_client import AsyncMPClient
from octavo.engine.core_link import ClientAddress
from octavo.engine.launch import CoreProcess, socket_directory
from octavo.engine.metric_page import MetricPage
from octavo.engine.metrics import EngineMetrics
from octavo.engine.stat_log import INTERVAL, StatLog
from octavo.engine.stats import IterationStats
from octavo.entrypoints.openai.api_process import LENGTH_BYTES, ApiStart
from octavo.entrypoints.openai.http_server import CLOSE_TIMEOUT, announce
from octavo.types.errors import EngineDeadError, EngineStartError
from octavo.utils import envs
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

_POLL = 0.1  # seconds between two looks at the processes
_MODULE = "octavo.entrypoints.openai.api_process"


def run_api_processes(config: OctavoConfig, args: ServerArgs, sockets: list[socket]) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises what the core's start raises, EngineStartError if an API process does not come up, and
    EngineDeadError when the core or an API process dies later: a process that is gone may have
    left requests behind, and who started the server starts it anew as a whole. A store of
    responses in memory becomes a temporary file, so that every process finds them.
    """
    if args.responses_store == "memory":
        with tempfile.TemporaryDirectory(prefix="octavo-responses-") as folder:
            store = f"sqlite:///{folder}/responses.db"
            _run(config, dataclasses.replace(args, responses_store=store), sockets)
    else:
        _run(config, args, sockets)


def _run(config: OctavoConfig, args: ServerArgs, sockets: list[socket]) -> None:
    directory = socket_directory()
    addresses = [ClientAddress.within(directory, str(i + 1)) for i in range(len(sockets))]
    page = MetricPage.create(len(sockets) + 1)
    processes: list[ApiProcess] = []
    try:
        for index, bound in enumerate(sockets):
            processes.append(ApiProcess(config, args, addresses, index, bound, page))
        # The processes load their tokenizers while the core loads the model.
        client = AsyncMPClient(config, CoreProcess(config, addresses))
        try:
            uvloop.run(Supervisor(config, args, client, processes, page).run(sockets[0], directory))
        finally:
            for process in processes:
                process.end(CLOSE_TIMEOUT)
            client.shutdown()
    finally:
        for process in processes:
            process.kill()
        shutil.rmtree(directory, ignore_errors=True)


class ApiProcess:
    """A process that answers HTTP. It ends when its standard input does."""

    def __init__(
        self,
        config: OctavoConfig,
        args: ServerArgs,
        addresses: list[ClientAddress],
        index: int,
        bound: socket,
        page: MetricPage,
    ) -> None:
        self.ready_fd, ready = os.pipe()
        page_fd = -1 if page.fd is None else page.fd
        start = ApiStart(
            config=config,
            args=args,
            address=addresses[index],
            client_index=index + 1,
            num_front_ends=len(addresses),
            socket_fd=bound.fileno(),
            page_fd=page_fd,
            ready_fd=ready,
        )
        path = os.pathsep.join(entry for entry in sys.path if entry)
        # The child inherits this mask until it ignores the signals itself.
        blocked = {signal.SIGINT, signal.SIGTERM}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE],
                stdin=subprocess.PIPE,
                env=envs.child_environment({"PYTHONPATH": path}),
                pass_fds=(bound.fileno(), page_fd, ready),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(ready)
        message = msgspec.msgpack.encode(start)
        self._write(len(message).to_bytes(LENGTH_BYTES, "little") + message)

    @property
    def code(self) -> int | None:
        """Its exit code; None while it lives."""
        return self._process.poll()

    def order(self, line: str) -> None:
        """Tell it to drain, to stop, or that the core is dead."""
        self._write(f"{line}\n".encode())

    def end(self, timeout: float) -> None:
        """Have it stop; killed when it takes too long."""
        self.order("stop")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        self.kill()

    def kill(self) -> None:
        """End it now; safe to call twice."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def _write(self, data: bytes) -> None:
        stdin = self._process.stdin
        if stdin is not None and not stdin.closed:
            with contextlib.suppress(OSError):
                stdin.write(data)
                stdin.flush()


class Supervisor:
    """Watches the core and the API processes, keeps the core's metrics, passes signals on."""

    def __init__(
        self,
        config: OctavoConfig,
        args: ServerArgs,
        client: AsyncMPClient,
        processes: list[ApiProcess],
        page: MetricPage,
    ) -> None:
        self._args = args
        self._client = client
        self._processes = processes
        self._metrics = EngineMetrics(config, client.facts, page, 0)
        self._log_stats = not config.observability.disable_log_stats
        self._stopping = False

    async def run(self, bound: socket, directory: str) -> None:
        """Until every API process has ended. Raises EngineStartError, EngineDeadError."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._pass_on, "drain")
        loop.add_signal_handler(signal.SIGINT, self._pass_on, "stop")
        tasks = [asyncio.create_task(self._run_metrics())]
        if self._log_stats:
            tasks.append(asyncio.create_task(self._run_stat_log()))
        try:
            await self._wait_until_ready()
            # Everybody is connected: no later death can leave the files behind.
            shutil.rmtree(directory, ignore_errors=True)
            if not self._stopping:
                announce(bound, self._args)
            await self._watch()
        finally:
            for task in tasks:
                task.cancel()

    def _pass_on(self, order: str) -> None:
        self._stopping = True
        for process in self._processes:
            process.order(order)

    async def _wait_until_ready(self) -> None:
        loop = asyncio.get_running_loop()
        for process in self._processes:
            byte = await loop.run_in_executor(None, os.read, process.ready_fd, 1)
            os.close(process.ready_fd)
            if not byte and not self._stopping:
                raise EngineStartError("an API process could not start; its error is above")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_POLL)
            ended = [process.code for process in self._processes if process.code is not None]
            if self._client.engine_dead:
                await self._wait_for_ends()
                self._client.check_health()
            if ended and not self._stopping:
                logger.error("an API process has ended with code %d; the server stops", ended[0])
                self._pass_on("stop")
                raise EngineDeadError(f"an API process has ended with code {ended[0]}")
            if len(ended) == len(self._processes):
                return

    async def _wait_for_ends(self) -> None:
        """Give the API processes the time to tell their clients."""
        for _ in range(int(CLOSE_TIMEOUT / _POLL)):
            if all(process.code is not None for process in self._processes):
                return
            await asyncio.sleep(_POLL)

    async def _run_metrics(self) -> None:
        try:
            while True:
                news = await self._client.get_output()
                if self._log_stats:
                    self._metrics.record(news.scheduler_stats, IterationStats())
        except EngineDeadError as error:
            reason = " ".join(str(error).split())
            for process in self._processes:
                process.order(f"dead {reason}")

    async def _run_stat_log(self) -> None:
        stat_log = StatLog(self._metrics)
        while True:
            await asyncio.sleep(INTERVAL)
            stat_log.log()
