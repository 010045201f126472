"""run_server(): start the engine, answer HTTP until told to stop or until the engine dies."""

from __future__ import annotations

import asyncio
import gc
import signal
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from socket import socket
from types import FrameType

import uvloop
from uvicorn.config import create_ssl_context

from octavo.config.engine_args import EngineArgs
from octavo.config.server import ServerArgs
from octavo.engine.async_llm import AsyncLLM
from octavo.entrypoints.chat_template import RESERVED_NAMES, template_source
from octavo.entrypoints.openai.app import build_context
from octavo.entrypoints.openai.http_server import HTTPServer
from octavo.entrypoints.openai.sockets import listening_socket
from octavo.types.errors import ConfigError


def run_server(engine_args: EngineArgs, server_args: ServerArgs) -> int:
    """Serve until SIGINT or SIGTERM; returns 0 then.

    Wrong options and a taken port are told before the model loads. Raises ConfigError,
    CheckpointError or whatever else the engine's start raises, and EngineDeadError when the
    engine dies later.
    """
    _check_tls(server_args)
    _check_template_kwargs(server_args)
    with _ended_by_sigterm(), listening_socket(server_args) as bound:
        if engine_args.chat_template is not None:
            template_source(engine_args.chat_template)
        config = engine_args.create_engine_config(usage="server")
        engine = AsyncLLM(config, clamp_max_tokens=server_args.clamp_max_tokens)
        try:
            uvloop.run(_serve(engine, server_args, bound))
        finally:
            engine.shutdown()
    return 0


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM unwinds the start, which takes down what it has set up; serving has its own way."""

    def leave(signum: int, frame: FrameType | None) -> None:
        sys.exit(128 + signum)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


async def _serve(engine: AsyncLLM, args: ServerArgs, bound: socket) -> None:
    server = HTTPServer(build_context(engine, args), bound)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.stop)
    # The first call attaches the engine to this loop: a death is noticed from now on.
    await engine.check_health()
    # What lives now lives as long as the server: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    await server.run_until_stopped()


def _check_tls(args: ServerArgs) -> None:
    """Try the TLS files. Raises ConfigError."""
    if args.ssl_certfile is None:
        for name in ("ssl_keyfile", "ssl_ca_certs"):
            if getattr(args, name) is not None:
                raise ConfigError(f"{name} is set without ssl_certfile; give both or neither")
        return
    try:
        create_ssl_context(
            certfile=args.ssl_certfile,
            keyfile=args.ssl_keyfile,
            password=None,
            ssl_version=ssl.PROTOCOL_TLS_SERVER,
            cert_reqs=args.ssl_cert_reqs,
            ca_certs=args.ssl_ca_certs,
            ciphers=args.ssl_ciphers,
        )
    except OSError as error:  # ssl.SSLError is one
        files = ", ".join(
            f"{name}={getattr(args, name)!r}"
            for name in ("ssl_certfile", "ssl_keyfile", "ssl_ca_certs")
            if getattr(args, name) is not None
        )
        raise ConfigError(f"TLS can't be set up with {files}: {error}") from None


def _check_template_kwargs(args: ServerArgs) -> None:
    """Refuse at once what every request would be refused for. Raises ConfigError."""
    reserved = sorted(RESERVED_NAMES & args.default_chat_template_kwargs.keys())
    if reserved:
        raise ConfigError(
            f"default_chat_template_kwargs can't set {reserved[0]!r}, which requests say themselves"
        )
