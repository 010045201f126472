"""/invocations: SageMaker's one path for whatever a model can do, chosen by the body's fields."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import (
    Endpoint,
    EventReply,
    Reply,
    RequestInfo,
    find_endpoint,
)
from octavo.entrypoints.openai.schema.chat import ChatRequest
from octavo.entrypoints.openai.schema.common import RequestBody
from octavo.entrypoints.openai.schema.completion import CompletionRequest
from octavo.types.errors import RequestError

_TARGETS = {"messages": "/v1/chat/completions", "prompt": "/v1/completions"}


async def invoke(
    context: ServerContext, info: RequestInfo, body: RequestBody
) -> Reply | EventReply:
    """Answer as the endpoint whose body this is: chat has `messages`, completions `prompt`."""
    for path in _TARGETS.values():
        target = find_endpoint(path)
        if isinstance(target.schema, type) and isinstance(body, target.schema):
            return await target.handler(context, info, body)
    raise LookupError(f"no endpoint takes a {type(body).__name__}")


def _kind(fields: Mapping[str, msgspec.Raw]) -> type[RequestBody]:
    for field, path in _TARGETS.items():
        schema = find_endpoint(path).schema
        if field in fields and isinstance(schema, type):
            return schema
    raise RequestError("The body has neither messages (chat) nor prompt (completions)")


ENDPOINTS = (
    Endpoint("/invocations", ("POST",), invoke, _kind, bodies=(ChatRequest, CompletionRequest)),
)
