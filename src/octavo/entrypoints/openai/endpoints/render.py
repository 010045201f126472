"""/v1/chat/completions/render and /v1/completions/render: what would be run, without running it."""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.entrypoints.openai.chat_plan import plan_chat
from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import Endpoint, Reply, RequestInfo, json_reply
from octavo.entrypoints.openai.prompts import Prompt
from octavo.entrypoints.openai.schema.chat import ChatRequest
from octavo.entrypoints.openai.schema.common import GenerationBody
from octavo.entrypoints.openai.schema.completion import CompletionRequest
from octavo.entrypoints.openai.schema.generate import GenerateRequest
from octavo.entrypoints.openai.text_prompts import completion_prompts
from octavo.types.sampling_params import SamplingParams

_NOT_FOR_CLIENTS = frozenset({"output_kind", "bad_words_token_ids", "eos_token_ids"})


async def render_chat(context: ServerContext, info: RequestInfo, body: ChatRequest) -> Reply:
    """The prompt of a conversation, as a body for /inference/v1/generate."""
    limit = body.max_completion_tokens
    params = context.sampling.params(
        body,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        prompt_logprobs=body.prompt_logprobs,
        max_tokens=body.max_tokens if limit is None else limit,
    )
    plan = await plan_chat(context, body, params)
    return json_reply(_request(context, info, body, plan.prompt, plan.params))


async def render_completion(
    context: ServerContext, info: RequestInfo, body: CompletionRequest
) -> Reply:
    """The prompts of a completion, as bodies for /inference/v1/generate."""
    params = context.sampling.params(
        body,
        logprobs=body.logprobs,
        prompt_logprobs=body.prompt_logprobs,
        max_tokens=body.max_tokens,
        default_max_tokens=SamplingParams().max_tokens,
    )
    prompts = await completion_prompts(context, body, params.n)
    return Reply(
        msgspec.json.encode([_request(context, info, body, prompt, params) for prompt in prompts])
    )


def _request(
    context: ServerContext,
    info: RequestInfo,
    body: GenerationBody,
    prompt: Prompt,
    params: SamplingParams,
) -> GenerateRequest:
    fitting = context.sampling.with_room(params, len(prompt.token_ids))
    plain: dict[str, Any] = msgspec.to_builtins(fitting)
    return GenerateRequest(
        model=body.model or context.model_names[0],
        request_id=body.request_id or info.id,
        token_ids=prompt.token_ids,
        sampling_params={k: v for k, v in plain.items() if k not in _NOT_FOR_CLIENTS},
        stream=body.stream,
        stream_options=body.stream_options,
        cache_salt=body.cache_salt,
        priority=body.priority,
    )


ENDPOINTS = (
    Endpoint(
        "/v1/chat/completions/render", ("POST",), render_chat, ChatRequest, reply=GenerateRequest
    ),
    Endpoint("/v1/completions/render", ("POST",), render_completion, CompletionRequest),
)
