"""HTTPServer: uvicorn with the engine watched and clients told when it stops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from octavo.config.server import ServerArgs
from octavo.entrypoints.openai.app import build_app
from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.errors import ServerStoppingError
from octavo.entrypoints.openai.exchange import Exchanges
from octavo.entrypoints.openai.http_protocol import HTTPProtocol
from octavo.entrypoints.openai.sockets import base_url
from octavo.types.errors import EngineDeadError
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

CLOSE_TIMEOUT = 5  # seconds that the last answers may take once the server stops
_HEALTH_INTERVAL = 0.5  # seconds between two looks at the engine
# One step's message of many streams is thousands of objects that live for a moment.
_GC_THRESHOLDS = (50_000, 20, 20)
_CIPHERS = "TLSv1"  # the HTTP library's default; newer protocols ignore it


class HTTPServer(uvicorn.Server):
    """Serves until `stop` is called or the engine dies."""

    def __init__(
        self,
        context: ServerContext,
        bound: socket.socket,
        when_ready: Callable[[], None] | None = None,
    ) -> None:
        """`when_ready` is called once it listens; without it, the log says so."""
        self._context = context
        self._bound = bound
        self._when_ready = when_ready or self._announce
        metrics = context.engine.metrics
        self._exchanges = Exchanges(lambda load: metrics.set_gauge("server_load", load))
        self._drain: asyncio.Task[None] | None = None
        super().__init__(_uvicorn_config(build_app(context, self._exchanges), context.args))

    async def run_until_stopped(self) -> None:
        """Serve. Raises EngineDeadError if that is what ended it."""
        # The first call attaches the engine to this loop: a death is noticed from now on.
        with contextlib.suppress(EngineDeadError):
            await self._context.engine.check_health()
        # What lives now lives as long as the server: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        watcher = asyncio.create_task(self._watch_engine())
        try:
            await self.serve(sockets=[self._bound])
        finally:
            watcher.cancel()
            await self._context.background.stop()
            self._context.workers.shutdown()
            self._context.responses.close()
        if self._context.engine.errored:
            await self._context.engine.check_health()

    def drain(self) -> None:
        """Finish what runs, within the shutdown timeout, take nothing new, then stop.

        A second call stops at once.
        """
        timeout = self._context.args.shutdown_timeout
        if self._drain is not None or timeout == 0:
            self.stop()
            return
        self._exchanges.refuse(ServerStoppingError("The server is shutting down; try another one"))
        logger.info(
            "stopping: %d requests have %g s to finish", len(self._exchanges.running), timeout
        )
        self._drain = asyncio.create_task(self._finish_running(timeout))

    async def _finish_running(self, timeout: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._exchanges.wait_until_idle()
                await self._context.background.wait_until_idle()
        self.stop()

    def stop(self) -> None:
        """Stop serving; what is running ends with an error. A second call waits for nothing."""
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True
        self._exchanges.stop(ServerStoppingError("The server is shutting down"))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        await super().startup(sockets)
        self._when_ready()

    def _announce(self) -> None:
        announce(self._bound, self._context.args)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to who started the server."""
        yield

    async def _watch_engine(self) -> None:
        """Stop serving once the engine has died; every request has ended with an error then."""
        while not self._context.engine.errored:
            await asyncio.sleep(_HEALTH_INTERVAL)
        logger.critical("the engine has died; the server stops")
        self.should_exit = True


def announce(bound: socket.socket, args: ServerArgs) -> None:
    """Say in the log where the server is."""
    url = base_url(bound, args)
    logger.info("octavo is ready: chat at %s/ and the API at %s/v1", url, url)


def _uvicorn_config(app: ASGIApp, args: ServerArgs) -> uvicorn.Config:
    uvicorn_log = logging.getLogger("uvicorn")
    uvicorn_log.handlers = list(logging.getLogger("octavo").handlers)
    return uvicorn.Config(
        app,
        http=HTTPProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=args.uvicorn_log_level,
        access_log=not args.disable_uvicorn_access_log,
        server_header=False,
        root_path=args.root_path,
        ssl_keyfile=args.ssl_keyfile,
        ssl_certfile=args.ssl_certfile,
        ssl_ca_certs=args.ssl_ca_certs,
        ssl_cert_reqs=args.ssl_cert_reqs,
        ssl_ciphers=args.ssl_ciphers or _CIPHERS,
        timeout_graceful_shutdown=CLOSE_TIMEOUT,
    )
