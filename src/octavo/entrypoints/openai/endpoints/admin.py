"""/abort_requests, /reset_prefix_cache and /server_info: for administrators, by their own key."""

from __future__ import annotations

import msgspec

from octavo import __version__
from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import Endpoint, Reply, RequestInfo
from octavo.entrypoints.openai.errors import failure
from octavo.entrypoints.openai.schema.admin import AbortRequest
from octavo.types.errors import RequestError

_MAX_IDS = 4096


async def abort_requests(context: ServerContext, info: RequestInfo, body: AbortRequest) -> Reply:
    """End requests by their ids (the `id` of their answers); unknown ids are passed over.

    Their streams end with finish_reason "abort".
    """
    if len(body.request_ids) > _MAX_IDS:
        raise RequestError(
            f"request_ids has {len(body.request_ids)} entries; at most {_MAX_IDS}", "request_ids"
        )
    await context.engine.abort(body.request_ids)
    return Reply(b"{}")


async def reset_prefix_cache(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """Forget every cached prefix; 409 while requests hold blocks."""
    if not await context.engine.reset_prefix_cache():
        message = "Requests hold blocks of the cache; try again when none run"
        return Reply(failure(409, message).body, 409)
    return Reply(b"{}")


async def server_info(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """The whole configuration as it was resolved; keys are hidden."""
    answer = {
        "version": __version__,
        "server": context.args.dump(),
        "engine": context.engine.config.dump(),
    }
    return Reply(msgspec.json.encode(answer))


ENDPOINTS = (
    Endpoint("/abort_requests", ("POST",), abort_requests, AbortRequest, is_admin=True),
    Endpoint("/reset_prefix_cache", ("POST",), reset_prefix_cache, is_admin=True),
    Endpoint("/server_info", ("GET",), server_info, is_admin=True),
)
