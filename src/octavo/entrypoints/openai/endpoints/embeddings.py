"""/v1/embeddings: texts as vectors."""

from __future__ import annotations

import time

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import Endpoint, Reply, RequestInfo, json_reply
from octavo.entrypoints.openai.pooling import array_writer, pool_texts, usage_of
from octavo.entrypoints.openai.schema.pooling import (
    EmbeddingData,
    EmbeddingRequest,
    EmbeddingResponse,
)
from octavo.types.pooling_params import PoolingParams


async def create_embeddings(
    context: ServerContext, info: RequestInfo, body: EmbeddingRequest
) -> Reply:
    """A vector for each text."""
    params = PoolingParams(
        task="embed",
        use_activation=body.normalize if body.use_activation is None else body.use_activation,
        dimensions=body.dimensions,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
    )
    write = array_writer(body)
    response_id = f"embd-{body.request_id or info.id}"
    outputs = await pool_texts(context, body, params, response_id)
    return json_reply(
        EmbeddingResponse(
            id=response_id,
            created=int(time.time()),
            model=body.model or context.model_names[0],
            data=[
                EmbeddingData(index=index, embedding=write(output.outputs.data))
                for index, output in enumerate(outputs)
            ],
            usage=usage_of(outputs),
        )
    )


ENDPOINTS = (
    Endpoint(
        "/v1/embeddings",
        ("POST",),
        create_embeddings,
        EmbeddingRequest,
        reply=EmbeddingResponse,
    ),
)
