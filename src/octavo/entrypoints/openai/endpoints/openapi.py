"""/openapi.json: what this server takes and gives, as OpenAPI, made from the schemas."""

from __future__ import annotations

import functools
import re
from typing import Any

import msgspec

from octavo import __version__
from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import ENDPOINTS as ALL
from octavo.entrypoints.openai.endpoint import Endpoint, Reply, RequestInfo

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_REF = "#/components/schemas/{name}"


async def openapi(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """This description."""
    return Reply(_document())


@functools.cache
def _document() -> bytes:
    endpoints = [endpoint for name in ALL for endpoint in ALL.get(name)]
    types: list[type] = []
    for endpoint in endpoints:
        types += [endpoint.errors.schema, *_bodies(endpoint)]
        types += [] if endpoint.reply is None else [endpoint.reply]
    types = list(dict.fromkeys(types))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = _PARAMETER.sub(r"{\1}", endpoint.path)
        for method in endpoint.methods:
            paths.setdefault(path, {})[method.lower()] = _operation(endpoint, method, by_type)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "octavo", "version": __version__},
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{}, {"key": []}],
        }
    )


def _bodies(endpoint: Endpoint) -> tuple[type[msgspec.Struct], ...]:
    return (endpoint.schema,) if isinstance(endpoint.schema, type) else endpoint.bodies


def _operation(
    endpoint: Endpoint, method: str, schemas: dict[type, dict[str, Any]]
) -> dict[str, Any]:
    module = endpoint.handler.__module__.rpartition(".")[2]
    operation: dict[str, Any] = {
        "operationId": f"{method.lower()}_{_PARAMETER.sub(r'by_1', endpoint.path).strip('/')}",
        "summary": " ".join((endpoint.handler.__doc__ or "").split()),
        "tags": [module],
        "responses": {
            "200": {"description": "The answer.", "content": _content(endpoint, schemas)},
            "default": {
                "description": "What went wrong.",
                "content": {"application/json": {"schema": schemas[endpoint.errors.schema]}},
            },
        },
    }
    operation["operationId"] = re.sub(r"\W+", "_", operation["operationId"])
    names = _PARAMETER.findall(endpoint.path)
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
    bodies = [schemas[body] for body in _bodies(endpoint)]
    if bodies:
        schema = bodies[0] if len(bodies) == 1 else {"anyOf": bodies}
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return operation


def _content(endpoint: Endpoint, schemas: dict[type, dict[str, Any]]) -> dict[str, Any]:
    if endpoint.reply is None:
        return {}
    content: dict[str, Any] = {"application/json": {"schema": schemas[endpoint.reply]}}
    streams = any("stream" in body.__struct_fields__ for body in _bodies(endpoint))
    if streams or endpoint.streams_by_query:
        content["text/event-stream"] = {}  # OpenAPI 3.1 has no words for the events of a stream
    return content


ENDPOINTS = (Endpoint("/openapi.json", ("GET",), openapi, while_stopping=True),)
