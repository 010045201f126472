"""/v1/models."""

from __future__ import annotations

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import Endpoint, Reply, RequestInfo, json_reply
from octavo.entrypoints.openai.schema.models import ModelCard, ModelList


async def list_models(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """Every name that requests may use."""
    return json_reply(ModelList(data=[_card(context, name) for name in context.model_names]))


async def retrieve_model(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """One of them."""
    name = info.path_params["model"]
    context.check_model(name)
    return json_reply(_card(context, name))


def _card(context: ServerContext, name: str) -> ModelCard:
    return ModelCard(
        id=name,
        created=context.started,
        root=context.model_root,
        max_model_len=context.max_model_len,
    )


ENDPOINTS = (
    Endpoint("/v1/models", ("GET",), list_models, reply=ModelList),
    Endpoint("/v1/models/{model:path}", ("GET",), retrieve_model, reply=ModelCard),
)
