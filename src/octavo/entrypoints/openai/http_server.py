"""HTTPServer: uvicorn with the engine watched and clients told when it stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from octavo.config.server import ServerArgs
from octavo.entrypoints.openai.app import build_app
from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.errors import ServerStoppingError
from octavo.entrypoints.openai.exchange import Exchanges
from octavo.entrypoints.openai.http_protocol import HTTPProtocol
from octavo.entrypoints.openai.sockets import base_url
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

_CLOSE_TIMEOUT = 5  # seconds that the last answers may take once the server stops
_HEALTH_INTERVAL = 0.5  # seconds between two looks at the engine
_CIPHERS = "TLSv1"  # the HTTP library's default; newer protocols ignore it


class HTTPServer(uvicorn.Server):
    """Serves until `stop` is called or the engine dies."""

    def __init__(self, context: ServerContext, bound: socket.socket) -> None:
        self._context = context
        self._bound = bound
        self._exchanges = Exchanges()
        super().__init__(_uvicorn_config(build_app(context, self._exchanges), context.args))

    async def run_until_stopped(self) -> None:
        """Serve. Raises EngineDeadError if that is what ended it."""
        watcher = asyncio.create_task(self._watch_engine())
        try:
            await self.serve(sockets=[self._bound])
        finally:
            watcher.cancel()
            self._context.workers.shutdown()
        if self._context.engine.errored:
            await self._context.engine.check_health()

    def stop(self) -> None:
        """Stop serving; what is running ends with an error. A second call waits for nothing."""
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True
        self._exchanges.stop(ServerStoppingError("The server is shutting down"))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say where."""
        await super().startup(sockets)
        url = base_url(self._bound, self._context.args)
        logger.info("octavo is ready: chat at %s/ and the API at %s/v1", url, url)

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
        timeout_graceful_shutdown=_CLOSE_TIMEOUT,
    )
