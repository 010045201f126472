"""/pooling and /classify: what a model makes of texts, as arrays or as labels."""

from __future__ import annotations

import time

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import Endpoint, Reply, RequestInfo, json_reply
from octavo.entrypoints.openai.pooling import array_writer, pool_texts, usage_of
from octavo.entrypoints.openai.schema.pooling import (
    ClassificationData,
    ClassificationResponse,
    ClassifyRequest,
    PoolingData,
    PoolingRequest,
    PoolingResponse,
)
from octavo.types.pooling_params import PoolingParams


async def create_pooling(context: ServerContext, info: RequestInfo, body: PoolingRequest) -> Reply:
    """An array for each text: one row, or one per token."""
    params = PoolingParams(
        task=body.task,
        use_activation=body.use_activation,
        dimensions=body.dimensions,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        step_tag_id=body.step_tag_id,
        returned_token_ids=body.returned_token_ids,
    )
    write = array_writer(body)
    response_id = f"pool-{body.request_id or info.id}"
    outputs = await pool_texts(context, body, params, response_id)
    return json_reply(
        PoolingResponse(
            id=response_id,
            created=int(time.time()),
            model=body.model or context.model_names[0],
            data=[
                PoolingData(index=index, data=write(output.outputs.data))
                for index, output in enumerate(outputs)
            ],
            usage=usage_of(outputs),
        )
    )


async def classify(context: ServerContext, info: RequestInfo, body: ClassifyRequest) -> Reply:
    """A score per label for each text."""
    params = PoolingParams(
        task="classify",
        use_activation=body.use_activation,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
    )
    response_id = f"classify-{body.request_id or info.id}"
    outputs = await pool_texts(context, body, params, response_id)
    pooler = context.engine.config.model.pooler
    labels = () if pooler is None else pooler.labels
    return json_reply(
        ClassificationResponse(
            id=response_id,
            created=int(time.time()),
            model=body.model or context.model_names[0],
            data=[
                ClassificationData(
                    index=index,
                    label=labels[int(output.outputs.data.argmax())],
                    probs=output.outputs.data.tolist(),
                    num_classes=len(labels),
                )
                for index, output in enumerate(outputs)
            ],
            usage=usage_of(outputs),
        )
    )


ENDPOINTS = (
    Endpoint("/pooling", ("POST",), create_pooling, PoolingRequest, reply=PoolingResponse),
    Endpoint("/classify", ("POST",), classify, ClassifyRequest, reply=ClassificationResponse),
)
