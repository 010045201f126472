"""/v1/grammar/check: whether a constraint can be served, without spending a token."""

from __future__ import annotations

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import Endpoint, Reply, RequestInfo, json_reply
from octavo.entrypoints.openai.errors import in_client_words
from octavo.entrypoints.openai.schema.grammar import GrammarCheckRequest, GrammarCheckResponse
from octavo.entrypoints.openai.structure import read_structure, structure_names
from octavo.types.errors import RequestError


async def check_grammar(
    context: ServerContext, info: RequestInfo, body: GrammarCheckRequest
) -> Reply:
    """Compile a constraint and say what came of it; a faulty one is a normal answer here."""
    context.check_model(body.model)
    if not body.response_format and not body.structured_outputs:
        raise RequestError("give response_format or structured_outputs", "structured_outputs")
    try:
        spec = read_structure(body.response_format, body.structured_outputs)
        if spec is None:
            return json_reply(GrammarCheckResponse(valid=True))
        await context.engine.check_grammar(spec)
    except RequestError as error:
        told = in_client_words(error, structure_names(body.response_format))
        return json_reply(GrammarCheckResponse(valid=False, error=str(told), param=told.param))
    return json_reply(GrammarCheckResponse(valid=True, kind=spec.kind))


ENDPOINTS = (
    Endpoint(
        "/v1/grammar/check",
        ("POST",),
        check_grammar,
        GrammarCheckRequest,
        reply=GrammarCheckResponse,
    ),
)
