"""/inference/v1/generate: tokens in, tokens out, no text on the way."""

from __future__ import annotations

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
from octavo.entrypoints.openai.generation import UsageCounter, collect, follow, start
from octavo.entrypoints.openai.logprobs import LOWEST, prompt_logprobs
from octavo.entrypoints.openai.schema.generate import (
    GenerateChoice,
    GenerateHiddenStates,
    GenerateLogprob,
    GenerateRequest,
    GenerateResponse,
)
from octavo.entrypoints.openai.streaming import to_json
from octavo.types.errors import RequestError
from octavo.types.outputs import CompletionOutput, HiddenStates, PositionLogprobs, RequestOutput
from octavo.types.sampling_params import RequestOutputKind, SamplingParams

# What users do not set.
_INTERNAL = (
    "output_kind",
    "bad_words_token_ids",
    "eos_token_ids",
    "dry_breaker_ids",
    "thinking_marks",
)


async def generate(
    context: ServerContext, info: RequestInfo, body: GenerateRequest
) -> Reply | EventReply:
    """Go on with a prompt of token ids; the answer is token ids."""
    params = _params(context, body)
    if body.stream_options is not None and not body.stream:
        raise RequestError("stream_options is only for stream=true", "stream_options")
    prompts = context.prompts.from_ids(
        [body.token_ids], truncate=params.truncate_prompt_tokens is not None
    )
    response_id = body.request_id or info.id
    outputs = start(context, body, prompts, params, response_id=response_id, limited=True)
    answer = _Answer(context, body, response_id)
    if body.stream:
        return EventReply(lambda writer: follow(writer, outputs, answer, response_id))
    return json_reply(answer.whole((await collect(outputs, 1))[0]))


class _Answer:
    """Writes one response, whole or chunk by chunk."""

    def __init__(self, context: ServerContext, body: GenerateRequest, response_id: str) -> None:
        self._id = response_id
        self._usage = UsageCounter(context.args.enable_prompt_tokens_details)
        options = body.stream_options
        self._include_usage = options is not None and bool(options.include_usage)
        self._open: set[int] = set()

    def whole(self, output: RequestOutput) -> GenerateResponse:
        """The response of a request that is not streamed."""
        self._usage.note(0, output)
        response = GenerateResponse(
            request_id=self._id,
            choices=[_choice(completion) for completion in output.outputs],
            usage=self._usage.usage,
        )
        if output.prompt_logprobs is not None:
            response.prompt_logprobs = prompt_logprobs(output.prompt_logprobs)
        return response

    def events(self, number: int, output: RequestOutput) -> bytes:
        """One chunk per output."""
        self._usage.note(number, output)
        for completion in output.outputs:
            if completion.finished:
                self._open.discard(completion.index)
            else:
                self._open.add(completion.index)
        return self._event([_choice(completion) for completion in output.outputs])

    def abandon(self, number: int) -> bytes:
        """Finish markers of the choices that are still open."""
        choices = [GenerateChoice(index=i, token_ids=[], finish_reason="error") for i in self._open]
        return self._event(choices) if choices else b""

    def last(self) -> bytes:
        """The usage, if it was asked for."""
        if not self._include_usage:
            return b""
        return _event(GenerateResponse(request_id=self._id, choices=[], usage=self._usage.usage))

    def _event(self, choices: list[GenerateChoice]) -> bytes:
        return _event(GenerateResponse(request_id=self._id, choices=choices))


def _event(chunk: GenerateResponse) -> bytes:
    return b"data: " + to_json(chunk) + b"\n\n"


def _params(context: ServerContext, body: GenerateRequest) -> SamplingParams:
    fields: dict[str, Any] = body.sampling_params
    for name in _INTERNAL:
        if name in fields:
            raise RequestError(f"sampling_params.{name} is not for clients", "sampling_params")
    kind = RequestOutputKind.DELTA if body.stream else RequestOutputKind.FINAL_ONLY
    # Without stop strings nobody needs the text.
    values = {"detokenize": bool(fields.get("stop")), **fields, "output_kind": kind}
    unknown = next((name for name in fields if name not in SamplingParams.__struct_fields__), None)
    if unknown is not None:
        wrong: dict[str, Any] = {unknown: None}
        SamplingParams(**wrong)  # raises, with the field that was meant
    try:
        params = msgspec.convert(values, SamplingParams)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, RequestError):
            raise error.__cause__ from None
        raise RequestError(f"sampling_params: {error}", "sampling_params") from None
    for name in ("logprobs", "prompt_logprobs"):
        context.sampling.check_logprobs(getattr(params, name), f"sampling_params.{name}")
    if params.prompt_logprobs is not None and body.stream:
        raise RequestError("prompt_logprobs can't be streamed; set stream=false", "sampling_params")
    if params.hidden_states is not None and body.stream:
        raise RequestError("hidden_states can't be streamed; set stream=false", "sampling_params")
    if params.thinking_token_budget is not None:
        params.thinking_marks = context.parsers.thinking_marks()
    return params


def _choice(completion: CompletionOutput) -> GenerateChoice:
    logprobs, states = completion.logprobs, completion.hidden_states
    return GenerateChoice(
        index=completion.index,
        token_ids=completion.token_ids,
        finish_reason=completion.finish_reason,
        stop_reason=completion.stop_reason,
        logprobs=None if logprobs is None else [_position(position) for position in logprobs],
        hidden_states=None if states is None else _hidden_states(states),
    )


def _hidden_states(found: HiddenStates) -> GenerateHiddenStates:
    return GenerateHiddenStates(
        found.layers,
        found.first_position,
        list(found.states.shape),
        found.states.astype("<f4", copy=False).tobytes(),
    )


def _position(position: PositionLogprobs) -> dict[str, GenerateLogprob]:
    return {
        str(token_id): GenerateLogprob(max(entry.logprob, LOWEST), entry.rank)
        for token_id, entry in position.items()
    }


ENDPOINTS = (
    Endpoint(
        "/inference/v1/generate", ("POST",), generate, GenerateRequest, reply=GenerateResponse
    ),
)
