"""run_server(): start the engine, answer HTTP until told to stop or until the engine dies."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from socket import socket
from types import FrameType

import uvloop

from octavo.config.engine_args import EngineArgs
from octavo.config.server import ServerArgs
from octavo.engine.async_llm import AsyncLLM
from octavo.entrypoints.openai.app import build_context
from octavo.entrypoints.openai.http_server import HTTPServer
from octavo.entrypoints.openai.preflight import (
    check_model_template,
    check_server_args,
    check_template_setting,
    check_tracing,
)
from octavo.entrypoints.openai.sockets import listening_sockets
from octavo.entrypoints.openai.supervisor import run_api_processes
from octavo.utils.logging import get_logger
from octavo.utils.phases import Phases, phase_table, process_start

logger = get_logger(__name__)


def run_server(engine_args: EngineArgs, server_args: ServerArgs) -> int:
    """Serve until SIGINT or SIGTERM; returns 0 then.

    Wrong options and a taken port are told before the model loads. Raises ConfigError,
    CheckpointError or whatever else the engine's start raises, and EngineDeadError when the
    engine dies later.
    """
    born = process_start()
    phases = Phases(born)
    phases.add({"front end imports": time.monotonic() - born})
    check_server_args(server_args)
    with _ended_by_sigterm(), listening_sockets(server_args) as sockets:
        check_template_setting(engine_args.chat_template)
        with phases("config"):
            config = engine_args.create_engine_config(usage="server")
        check_model_template(config)
        check_tracing(config)
        if len(sockets) > 1:
            run_api_processes(config, server_args, sockets)
            return 0
        engine = AsyncLLM(config, clamp_max_tokens=server_args.clamp_max_tokens)
        try:
            phases.add(engine.metrics.startup)
            uvloop.run(_serve(engine, server_args, sockets[0], phases))
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


async def _serve(engine: AsyncLLM, args: ServerArgs, bound: socket, phases: Phases) -> None:
    server = HTTPServer(build_context(engine, args), bound)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, server.stop)
    loop.add_signal_handler(signal.SIGTERM, server.drain)
    engine.metrics.startup = phases.complete()
    logger.info("start-up:\n%s", phase_table(engine.metrics.startup))
    await server.run_until_stopped()
