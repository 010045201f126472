"""/v1/chat/completions."""

from __future__ import annotations

from octavo.entrypoints.openai.beams import beam_search_params, search_beams
from octavo.entrypoints.openai.chat_answer import ChatAnswer
from octavo.entrypoints.openai.chat_plan import plan_chat
from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import (
    Endpoint,
    EventReply,
    Reply,
    RequestInfo,
    json_reply,
)
from octavo.entrypoints.openai.generation import StreamSettings, collect, follow, start
from octavo.entrypoints.openai.schema.chat import ChatRequest, ChatResponse
from octavo.types.errors import RequestError
from octavo.types.sampling_params import SamplingParams


async def create_chat_completion(
    context: ServerContext, info: RequestInfo, body: ChatRequest
) -> Reply | EventReply:
    """Go on with a conversation."""
    stream = StreamSettings.of(body, context.args.enable_force_include_usage)
    plan = await plan_chat(context, body, _sampling_params(context, body))
    response_id = f"chatcmpl-{body.request_id or info.id}"
    beams = beam_search_params(body, plan.params, context.max_model_len)
    if beams is not None:
        skip = plan.params.skip_special_tokens
        found = await search_beams(
            context, body, plan.prompt, beams, response_id, skip_special=skip
        )
        return json_reply(ChatAnswer(context, body, plan, stream, response_id).whole(found))
    outputs = start(
        context,
        body,
        [plan.prompt],
        plan.params,
        response_id=response_id,
        limited=_max_tokens(body) is not None,
    )
    answer = ChatAnswer(context, body, plan, stream, response_id)
    if body.stream:
        texts = answer.text_events if answer.is_plain else None
        return EventReply(
            lambda writer: follow(writer, outputs, answer, response_id, text_events=texts)
        )
    return json_reply(answer.whole((await collect(outputs, 1))[0]))


def _sampling_params(context: ServerContext, body: ChatRequest) -> SamplingParams:
    if body.top_logprobs is not None and not body.logprobs:
        raise RequestError("top_logprobs needs logprobs=true", "top_logprobs")
    if body.prompt_logprobs is not None and body.stream:
        raise RequestError("prompt_logprobs can't be streamed; set stream=false", "prompt_logprobs")
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    context.sampling.check_logprobs(logprobs, "top_logprobs")
    return context.sampling.params(
        body,
        logprobs=logprobs,
        prompt_logprobs=body.prompt_logprobs,
        max_tokens=_max_tokens(body),
    )


def _max_tokens(body: ChatRequest) -> int | None:
    """The limit a client set; the newer field wins."""
    return body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens


ENDPOINTS = (
    Endpoint(
        "/v1/chat/completions",
        ("POST",),
        create_chat_completion,
        ChatRequest,
        reply=ChatResponse,
    ),
)
