"""/score and /rerank: how well texts go together."""

from __future__ import annotations

import time

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import Endpoint, Reply, RequestInfo, json_reply
from octavo.entrypoints.openai.pooling import score_pairs
from octavo.entrypoints.openai.schema.pooling import (
    RerankDocument,
    RerankRequest,
    RerankResponse,
    RerankResult,
    ScoreData,
    ScoreRequest,
    ScoreResponse,
)
from octavo.entrypoints.scoring import pair_up
from octavo.types.errors import RequestError

_QUERIES = ("queries", "data_1", "text_1")
_DOCUMENTS = ("documents", "data_2", "text_2")


async def create_score(context: ServerContext, info: RequestInfo, body: ScoreRequest) -> Reply:
    """A score for each pair: one text with each of many, or as many one by one."""
    first, first_name = _texts(body, _QUERIES)
    second, second_name = _texts(body, _DOCUMENTS)
    pairs = pair_up(first, second, (first_name, second_name))
    response_id = f"score-{body.request_id or info.id}"
    scores, usage = await score_pairs(context, body, pairs, response_id)
    return json_reply(
        ScoreResponse(
            id=response_id,
            created=int(time.time()),
            model=body.model or context.model_names[0],
            data=[ScoreData(index=index, score=score) for index, score in enumerate(scores)],
            usage=usage,
        )
    )


async def rerank(context: ServerContext, info: RequestInfo, body: RerankRequest) -> Reply:
    """Documents, ordered by how well they answer a query."""
    if body.top_n is not None and body.top_n < 0:
        raise RequestError(f"top_n={body.top_n} is below 0", "top_n")
    texts = [each if isinstance(each, str) else each.text for each in body.documents]
    pairs = pair_up([body.query], texts, ("query", "documents"))
    response_id = f"rerank-{body.request_id or info.id}"
    scores, usage = await score_pairs(context, body, pairs, response_id)
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    shows = body.return_documents is not False
    results = []
    for index in order[: body.top_n or None]:
        result = RerankResult(index=index, relevance_score=scores[index])
        if shows:
            result.document = RerankDocument(texts[index])
        results.append(result)
    model = body.model or context.model_names[0]
    return json_reply(RerankResponse(id=response_id, model=model, usage=usage, results=results))


def _texts(body: ScoreRequest, names: tuple[str, ...]) -> tuple[list[str], str]:
    """(texts, the field they came in) of one side of the pairs."""
    given = [name for name in names if getattr(body, name) is not None]
    if len(given) != 1:
        found = f"{' and '.join(given)} say the same" if given else f"{names[0]} is missing"
        raise RequestError(f"{found}; set one of {', '.join(names)}", names[0])
    value = getattr(body, given[0])
    return ([value] if isinstance(value, str) else value), given[0]


ENDPOINTS = (
    *(
        Endpoint(path, ("POST",), create_score, ScoreRequest, reply=ScoreResponse)
        for path in ("/score", "/v1/score")
    ),
    *(
        Endpoint(path, ("POST",), rerank, RerankRequest, reply=RerankResponse)
        for path in ("/rerank", "/v1/rerank", "/v2/rerank")
    ),
)
