"""Build the ASGI application: every endpoint of the registry, the pages, middleware."""

from __future__ import annotations

import time
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from octavo.config.octavo_config import OctavoConfig, default_sampling_params
from octavo.config.server import ServerArgs
from octavo.entrypoints.apidocs.pages import docs_routes
from octavo.entrypoints.chat_template import load_chat_template
from octavo.entrypoints.console.pages import console_routes
from octavo.entrypoints.openai.background import BackgroundRuns
from octavo.entrypoints.openai.context import EngineClient, ServerContext
from octavo.entrypoints.openai.conversation import ConversationRenderer
from octavo.entrypoints.openai.endpoint import ENDPOINTS
from octavo.entrypoints.openai.errors import describe
from octavo.entrypoints.openai.event_mirror import EventMirror
from octavo.entrypoints.openai.event_store import open_event_store
from octavo.entrypoints.openai.exchange import EndpointApp, Exchanges, request_id
from octavo.entrypoints.openai.keys import ApiKeys
from octavo.entrypoints.openai.middleware import APIKeyMiddleware, RequestIdMiddleware
from octavo.entrypoints.openai.parsing import RequestParser
from octavo.entrypoints.openai.prompts import PromptBuilder
from octavo.entrypoints.openai.response_store import open_store
from octavo.entrypoints.openai.sampling import SamplingDefaults
from octavo.entrypoints.openai.workers import Workers
from octavo.entrypoints.tool_parsers.answer_parsers import choose_parsers

# Probes know no keys, and these answers say nothing about models or users.
_OPEN_PATHS = ("/health", "/ping")


def build_context(engine: EngineClient, args: ServerArgs) -> ServerContext:
    """What the endpoints work with. Raises ConfigError for a chat template that can't be read."""
    model = engine.config.model
    workers = Workers()
    template = load_chat_template(model.chat_template, engine.tokenizer)
    parsers = choose_parsers(
        engine.tokenizer,
        "" if template is None else template.text,
        model.arch.architecture,
        tool_parser=args.tool_call_parser,
        reasoning_parser=args.reasoning_parser,
        plugins=(args.tool_parser_plugin, args.reasoning_parser_plugin),
    )
    responses = open_store(args.responses_store, args.responses_store_size)
    events = open_event_store(args.responses_store)
    return ServerContext(
        engine=engine,
        args=args,
        workers=workers,
        parser=RequestParser(args.strict_fields),
        prompts=PromptBuilder(engine.tokenizer, model.max_model_len, workers),
        conversations=ConversationRenderer(
            template,
            engine.tokenizer,
            args.default_chat_template_kwargs,
            args.trust_request_chat_template,
            history_id=None if parsers.tools is None else parsers.tools.history_id,
            hide_unused_tools=args.exclude_tools_when_tool_choice_none,
        ),
        parsers=parsers,
        sampling=SamplingDefaults(
            default_sampling_params(engine.config), model.max_model_len, model.max_logprobs
        ),
        responses=responses,
        background=BackgroundRuns(None if events is None else EventMirror(events)),
        max_model_len=model.max_model_len,
        model_names=model.served_model_name,
        model_root=_public_root(engine.config),
        started=int(time.time()),
    )


def build_app(context: ServerContext, exchanges: Exchanges) -> Starlette:
    """The application; `exchanges` will hold the requests being answered."""
    keys = ApiKeys.of(context.args)
    endpoints = [
        endpoint
        for name in ENDPOINTS
        for endpoint in ENDPOINTS.get(name)
        if keys.has_admins or not endpoint.is_admin
    ]
    pages = [*console_routes(), *docs_routes()]
    routes = [
        Route(
            endpoint.path,
            EndpointApp(endpoint, context, exchanges),
            methods=list(endpoint.methods),
        )
        for endpoint in endpoints
    ]
    app = Starlette(
        routes=[*routes, *pages],
        middleware=_middleware(
            context.args,
            keys,
            open_paths=[*_OPEN_PATHS, *(page.path for page in pages)],
            admin_paths=[endpoint.path for endpoint in endpoints if endpoint.is_admin],
        ),
        exception_handlers={HTTPException: _answer_error, Exception: _answer_error},
    )
    app.router.redirect_slashes = False
    return app


def _middleware(
    args: ServerArgs, keys: ApiKeys, *, open_paths: list[str], admin_paths: list[str]
) -> list[Middleware]:
    """From the outside in. CORS comes before the keys: browsers ask without one first."""
    layers = [
        Middleware(
            CORSMiddleware,
            allow_origins=args.allowed_origins,
            allow_methods=args.allowed_methods,
            allow_headers=args.allowed_headers,
            allow_credentials=args.allow_credentials,
        )
    ]
    if args.enable_request_id_headers:
        layers.insert(0, Middleware(RequestIdMiddleware))
    if keys.has_clients or keys.has_admins:
        layers.append(
            Middleware(APIKeyMiddleware, keys=keys, open_paths=open_paths, admin_paths=admin_paths)
        )
    return layers


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code in (404, 405):
        allowed = (error.headers or {}).get("Allow")
        remedy = f"; it takes {allowed}" if allowed else ""
        asked = f"{request.method} {request.scope['path']:.128}"
        error = HTTPException(
            error.status_code, f"{asked} is not served here{remedy}", headers=error.headers
        )
    failure = describe(error, request_id(request.scope))
    response = Response(failure.body, failure.status, media_type="application/json")
    response.raw_headers.extend(failure.headers)
    return response


def _public_root(config: OctavoConfig) -> str:
    """The model as given, unless that is a place in this machine's file system."""
    model = config.model
    return model.served_model_name[0] if Path(model.model).exists() else model.model
