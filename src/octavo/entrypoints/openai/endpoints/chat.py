"""/v1/chat/completions."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import (
    Endpoint,
    EventReply,
    Reply,
    RequestInfo,
    json_reply,
)
from octavo.entrypoints.openai.generation import (
    StreamSettings,
    UsageCounter,
    collect,
    follow,
    start,
)
from octavo.entrypoints.openai.logprobs import LogprobsFormatter, prompt_logprobs
from octavo.entrypoints.openai.prompts import Prompt
from octavo.entrypoints.openai.schema.chat import (
    ChatChoice,
    ChatLogprobs,
    ChatMessage,
    ChatRequest,
    ChatResponse,
)
from octavo.entrypoints.openai.streaming import ChunkTemplate, to_json
from octavo.types.errors import RequestError
from octavo.types.outputs import CompletionOutput, RequestOutput
from octavo.types.sampling_params import SamplingParams


async def create_chat_completion(
    context: ServerContext, info: RequestInfo, body: ChatRequest
) -> Reply | EventReply:
    """Go on with a conversation."""
    stream = StreamSettings.of(body, context.args.enable_force_include_usage)
    params = _sampling_params(context, body)
    prompt = await _prompt(context, body)
    response_id = f"chatcmpl-{body.request_id or info.id}"
    outputs = start(
        context,
        body,
        [prompt],
        params,
        response_id=response_id,
        limited=_max_tokens(body) is not None,
    )
    answer = _ChatAnswer(context, body, params, stream, response_id)
    if body.stream:
        return EventReply(lambda writer: follow(writer, outputs, answer, response_id))
    return json_reply(answer.whole((await collect(outputs, 1))[0]))


class _ChatAnswer:
    """Writes one response, whole or chunk by chunk."""

    def __init__(
        self,
        context: ServerContext,
        body: ChatRequest,
        params: SamplingParams,
        stream: StreamSettings,
        response_id: str,
    ) -> None:
        args = context.args
        self._id = response_id
        self._created = int(time.time())
        self._model = body.model or context.model_names[0]
        self._role, self._echo = _role_and_echo(body, args.response_role)
        self._n = params.n
        self._stream = stream
        self._token_ids = bool(body.return_token_ids)
        self._logprobs = (
            LogprobsFormatter(
                context.engine.tokenizer,
                params.logprobs,
                args.return_tokens_as_token_ids or bool(body.return_tokens_as_token_ids),
            )
            if params.logprobs is not None
            else None
        )
        self._usage = UsageCounter(args.enable_prompt_tokens_details)
        self._open = set(range(params.n))
        self._template = ChunkTemplate(
            self._id,
            "chat.completion.chunk",
            self._created,
            self._model,
            usage_null=stream.include_usage,
        )
        self._begun = False

    def whole(self, output: RequestOutput) -> ChatResponse:
        """The response of a request that is not streamed."""
        self._usage.note(0, output)
        response = ChatResponse(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[self._choice(completion) for completion in output.outputs],
            usage=self._usage.usage,
        )
        if output.prompt_logprobs is not None:
            response.prompt_logprobs = prompt_logprobs(output.prompt_logprobs)
        if self._token_ids:
            response.prompt_token_ids = output.prompt_token_ids
        return response

    def events(self, number: int, output: RequestOutput) -> bytes:
        """The chunks of an output; with the first one, those that name the role."""
        self._usage.note(number, output)
        chunks = []
        if not self._begun:
            self._begun = True
            chunks.append(self._beginning(output))
        chunks += [self._chunk(completion) for completion in output.outputs]
        return b"".join(chunks)

    def abandon(self, number: int) -> bytes:
        """Finish markers of the choices that are still open."""
        markers = [
            self._template.start(index)
            + b'"delta":{},"logprobs":null,"finish_reason":"error"'
            + self._template.tail()
            for index in sorted(self._open)
        ]
        self._open.clear()
        return b"".join(markers)

    def last(self) -> bytes:
        """The usage, if it was asked for."""
        return self._template.usage(self._usage.usage) if self._stream.include_usage else b""

    def _choice(self, completion: CompletionOutput) -> ChatChoice:
        return ChatChoice(
            index=completion.index,
            message=ChatMessage(self._role, self._echo + completion.text),
            logprobs=self._chat_logprobs(completion),
            finish_reason=completion.finish_reason,
            stop_reason=completion.stop_reason,
            token_ids=completion.token_ids if self._token_ids else msgspec.UNSET,
        )

    def _beginning(self, output: RequestOutput) -> bytes:
        delta = to_json({"role": self._role, "content": self._echo})
        more = b""
        if self._token_ids:
            more = b',"prompt_token_ids":' + to_json(output.prompt_token_ids)
        return b"".join(
            self._template.start(index)
            + b'"delta":'
            + delta
            + b',"logprobs":null,"finish_reason":null'
            + self._template.tail(self._running_usage(), more)
            for index in range(self._n)
        )

    def _chunk(self, completion: CompletionOutput) -> bytes:
        plain = self._logprobs is None and not self._token_ids and not completion.finished
        if plain and not completion.text:
            return b""  # a token that is only a part of a character
        parts = [self._template.start(completion.index), b'"delta":{"content":']
        parts.append(to_json(completion.text))
        if plain:
            parts.append(b'},"logprobs":null,"finish_reason":null')
        else:
            parts += (b'},"logprobs":', to_json(self._chat_logprobs(completion)))
            parts += (b',"finish_reason":', to_json(completion.finish_reason))
            if completion.finished:
                self._open.discard(completion.index)
                parts += (b',"stop_reason":', to_json(completion.stop_reason))
            if self._token_ids:
                parts += (b',"token_ids":', to_json(completion.token_ids))
        parts.append(self._template.tail(self._running_usage()))
        return b"".join(parts)

    def _running_usage(self) -> Any:
        return self._usage.usage if self._stream.continuous_usage else None

    def _chat_logprobs(self, completion: CompletionOutput) -> ChatLogprobs | None:
        if self._logprobs is None:
            return None
        return self._logprobs.chat(completion.token_ids, completion.logprobs or [])


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


async def _prompt(context: ServerContext, body: ChatRequest) -> Prompt:
    if body.tools and body.tool_choice != "none":
        raise RequestError(
            "tools: this server does not parse tool calls; leave tools out, or set tool_choice to "
            '"none" to only show them to the model',
            "tools",
        )
    if body.tool_choice not in (None, "none", "auto"):
        raise RequestError("tool_choice must be none: tool calls are not parsed", "tool_choice")
    text = await context.workers.run(lambda: context.conversations.render(body))
    (prompt,) = await context.prompts.from_texts(
        [text],
        add_special_tokens=bool(body.add_special_tokens),
        truncate=body.truncate_prompt_tokens is not None,
        param="messages",
    )
    return prompt


def _role_and_echo(body: ChatRequest, response_role: str) -> tuple[str, str]:
    """The answer's role, and the text it begins with.

    An answer that goes on with the last message has that message's role; with `echo`, also its
    text.
    """
    last = body.messages[-1]
    goes_on = bool(body.continue_final_message)
    role = last["role"] if goes_on else response_role
    echoes = bool(body.echo) and last["role"] == role and isinstance(last.get("content"), str)
    return role, last["content"] if echoes else ""


ENDPOINTS = (Endpoint("/v1/chat/completions", ("POST",), create_chat_completion, ChatRequest),)
