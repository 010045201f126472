"""/start_profile and /stop_profile: a trace of the engine's steps, for administrators."""

from __future__ import annotations

import msgspec

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import Endpoint, Reply, RequestInfo
from octavo.entrypoints.openai.errors import failure
from octavo.types.errors import OctavoError

_OFF = (
    "This server records no traces; its operator can allow it with --profiler-config "
    '\'{"profiler": "torch", "torch_profiler_dir": "FOLDER"}\''
)


async def start_profile(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """Record from now on; 409 if that is being done already."""
    if context.args.profiler_folder is None:
        return Reply(failure(404, _OFF).body, 404)
    try:
        await context.engine.start_profile()
    except OctavoError as error:
        return Reply(failure(409, str(error)).body, 409)
    return Reply(b"{}")


async def stop_profile(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """Write what was recorded into the operator's folder; 409 if nothing was."""
    folder = context.args.profiler_folder
    if folder is None:
        return Reply(failure(404, _OFF).body, 404)
    try:
        path = await context.engine.stop_profile(folder)
    except OctavoError as error:
        return Reply(failure(409, str(error)).body, 409)
    return Reply(msgspec.json.encode({"trace": path}))


ENDPOINTS = (
    Endpoint("/start_profile", ("POST",), start_profile, is_admin=True),
    Endpoint("/stop_profile", ("POST",), stop_profile, is_admin=True),
)
