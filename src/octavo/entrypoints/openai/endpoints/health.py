"""/health, /ping, /version, /load and /metrics: how the server is."""

from __future__ import annotations

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from octavo import __version__
from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import Endpoint, Reply, RequestInfo
from octavo.entrypoints.openai.errors import failure
from octavo.types.errors import EngineDeadError


async def health(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """200 while the engine works; 503 once it has died, makes no progress, or the server stops."""
    try:
        await context.engine.check_health()
    except EngineDeadError as error:
        return Reply(failure(503, str(error)).body, 503)
    return Reply(b"")


async def version(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """The version of octavo."""
    return Reply(msgspec.json.encode({"version": __version__}))


async def load(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """How many requests for model output are being answered, by all of the server's processes."""
    return Reply(
        msgspec.json.encode({"server_load": int(context.engine.metrics.gauge("server_load"))})
    )


async def metrics(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """Every metric, in Prometheus' text format."""
    text = generate_latest(context.engine.metrics.registry)
    return Reply(text, media_type=CONTENT_TYPE_LATEST.encode())


ENDPOINTS = (
    Endpoint("/health", ("GET",), health),
    Endpoint("/ping", ("GET", "POST"), health),
    Endpoint("/version", ("GET",), version, while_stopping=True),
    Endpoint("/load", ("GET",), load, while_stopping=True),
    Endpoint("/metrics", ("GET",), metrics, while_stopping=True),
)
