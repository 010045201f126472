"""/v1/completions."""

from __future__ import annotations

import time
from collections import defaultdict

from octavo.entrypoints.openai.beams import beam_search_params, search_beams
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
from octavo.entrypoints.openai.schema.completion import (
    CompletionChoice,
    CompletionLogprobs,
    CompletionRequest,
    CompletionResponse,
)
from octavo.entrypoints.openai.streaming import ChunkTemplate, to_json
from octavo.entrypoints.openai.text_prompts import completion_prompts
from octavo.types.errors import RequestError
from octavo.types.outputs import CompletionOutput, PositionLogprobs, RequestOutput
from octavo.types.sampling_params import SamplingParams

_DEFAULT_MAX_TOKENS = 16  # the API's own

_PLAIN_END = b',"logprobs":null,"finish_reason":null'


async def create_completion(
    context: ServerContext, info: RequestInfo, body: CompletionRequest
) -> Reply | EventReply:
    """Go on with one or several prompts."""
    stream = StreamSettings.of(body, context.args.enable_force_include_usage)
    params = _sampling_params(context, body)
    prompts = await completion_prompts(context, body, params.n)
    response_id = f"cmpl-{body.request_id or info.id}"
    beams = beam_search_params(body, params, context.max_model_len)
    if beams is not None:
        skip = params.skip_special_tokens
        found = [
            await search_beams(context, body, prompt, beams, response_id, skip_special=skip)
            for prompt in prompts
        ]
        answer = _CompletionAnswer(context, body, params, prompts, stream, response_id)
        return json_reply(answer.whole(found))
    outputs = start(
        context,
        body,
        prompts,
        params,
        response_id=response_id,
        limited=body.max_tokens is not None,
    )
    answer = _CompletionAnswer(context, body, params, prompts, stream, response_id)
    if body.stream:
        texts = answer.text_events if answer.is_plain else None
        return EventReply(
            lambda writer: follow(writer, outputs, answer, response_id, text_events=texts)
        )
    return json_reply(answer.whole(await collect(outputs, len(prompts))))


class _CompletionAnswer:
    """Writes one response, whole or chunk by chunk."""

    def __init__(
        self,
        context: ServerContext,
        body: CompletionRequest,
        params: SamplingParams,
        prompts: list[Prompt],
        stream: StreamSettings,
        response_id: str,
    ) -> None:
        args = context.args
        self._id = response_id
        self._created = int(time.time())
        self._model = body.model or context.model_names[0]
        self._n = params.n
        self._prompts = prompts
        self._stream = stream
        self._echo = bool(body.echo)
        self._token_ids = bool(body.return_token_ids)
        self._wants_prompt_logprobs = body.prompt_logprobs is not None
        self._builder = context.prompts
        if self._echo:
            self._builder.tokenizer("echo")  # refuses now what could not be done later
        self._skip_special_tokens = params.skip_special_tokens
        self._truncated = params.truncate_prompt_tokens is not None
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
        self._template = ChunkTemplate(
            self._id,
            "text_completion",
            self._created,
            self._model,
            usage_null=stream.include_usage,
        )
        self._open = set(range(len(prompts) * params.n))
        self._offsets: dict[int, int] = {}  # of begun choices: where their next token is
        self._prompt_logprobs: dict[int, list[PositionLogprobs | None]] = {}
        # Outputs that wait for the log-probabilities of the prompt they are to begin with.
        self._held: defaultdict[int, list[CompletionOutput]] = defaultdict(list)

    @property
    def is_plain(self) -> bool:
        """Whether the chunks between first and last hold a text and nothing else."""
        return self._logprobs is None and not (self._token_ids or self._stream.continuous_usage)

    def whole(self, outputs: list[RequestOutput]) -> CompletionResponse:
        """The response of a request that is not streamed."""
        choices = []
        for number, output in enumerate(outputs):
            self._usage.note(number, output)
            self._note_prompt_logprobs(number, output)
            choices += [self._choice(number, output, choice) for choice in output.outputs]
        return CompletionResponse(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=choices,
            usage=self._usage.usage,
        )

    def events(self, number: int, output: RequestOutput) -> bytes:
        """The chunks of an output of prompt `number`."""
        self._usage.note(number, output)
        self._note_prompt_logprobs(number, output)
        held = self._held[number]
        held += output.outputs
        echo_waits = self._echo and self._logprobs is not None
        if echo_waits and number not in self._prompt_logprobs:
            return b""
        chunks = [self._chunk(number, output, completion) for completion in held]
        held.clear()
        return b"".join(chunks)

    def text_events(self, index: int, text: str, token_ids: list[int]) -> bytes:
        """The chunk of a delta of sequence `index` of the only prompt; see `is_plain`."""
        self._usage.note_tokens(len(token_ids))
        return self._template.text(index, b'"text":', text, _PLAIN_END) if text else b""

    def abandon(self, number: int) -> bytes:
        """Finish markers of the prompt's choices that are still open."""
        mine = [i for i in sorted(self._open) if i // self._n == number]
        self._open.difference_update(mine)
        return b"".join(
            self._template.start(index)
            + b'"text":"","logprobs":null,"finish_reason":"error"'
            + self._template.tail()
            for index in mine
        )

    def last(self) -> bytes:
        """The usage, if it was asked for."""
        return self._template.usage(self._usage.usage) if self._stream.include_usage else b""

    def _note_prompt_logprobs(self, number: int, output: RequestOutput) -> None:
        if output.prompt_logprobs is not None:
            self._prompt_logprobs[number] = output.prompt_logprobs

    def _choice(
        self, number: int, output: RequestOutput, completion: CompletionOutput
    ) -> CompletionChoice:
        echoed = self._prompt_text(number, output) if self._echo else ""
        logprobs, _ = self._choice_logprobs(number, output, completion, len(echoed), begins=True)
        choice = CompletionChoice(
            index=number * self._n + completion.index,
            text=echoed + completion.text,
            logprobs=logprobs,
            finish_reason=completion.finish_reason,
            stop_reason=completion.stop_reason,
        )
        if self._wants_prompt_logprobs and number in self._prompt_logprobs:
            choice.prompt_logprobs = prompt_logprobs(self._prompt_logprobs[number])
        if self._token_ids:
            choice.prompt_token_ids = output.prompt_token_ids
            choice.token_ids = completion.token_ids
        return choice

    def _chunk(self, number: int, output: RequestOutput, completion: CompletionOutput) -> bytes:
        index = number * self._n + completion.index
        begins = index not in self._offsets
        text = completion.text
        if begins:
            echoed = self._prompt_text(number, output) if self._echo else ""
            text = echoed + text
            self._offsets[index] = len(echoed)
        plain = self._logprobs is None and not self._token_ids and not completion.finished
        if plain and not text and not begins:
            return b""  # a token that is only a part of a character
        parts = [self._template.start(index), b'"text":', to_json(text)]
        if plain:
            parts.append(_PLAIN_END)
        else:
            logprobs, self._offsets[index] = self._choice_logprobs(
                number, output, completion, self._offsets[index], begins=begins
            )
            parts += (b',"logprobs":', to_json(logprobs))
            parts += (b',"finish_reason":', to_json(completion.finish_reason))
            if completion.finished:
                self._open.discard(index)
                parts += (b',"stop_reason":', to_json(completion.stop_reason))
            if self._token_ids:
                if begins:
                    parts += (b',"prompt_token_ids":', to_json(output.prompt_token_ids))
                parts += (b',"token_ids":', to_json(completion.token_ids))
        usage = self._usage.usage if self._stream.continuous_usage else None
        parts.append(self._template.tail(usage))
        return b"".join(parts)

    def _choice_logprobs(
        self,
        number: int,
        output: RequestOutput,
        completion: CompletionOutput,
        offset: int,
        *,
        begins: bool,
    ) -> tuple[CompletionLogprobs | None, int]:
        """Log-probabilities of a choice's new tokens, after those of an echoed prompt.

        Also where the next token is; `offset` is where the new ones are.
        """
        if self._logprobs is None:
            return None, offset
        own, offset = self._logprobs.completion(
            completion.token_ids, completion.logprobs or [], offset
        )
        if not (self._echo and begins):
            return own, offset
        prompt, _ = self._logprobs.completion(
            output.prompt_token_ids, self._prompt_logprobs[number], 0
        )
        both = (
            getattr(prompt, name) + getattr(own, name)
            for name in CompletionLogprobs.__struct_fields__
        )
        return CompletionLogprobs(*both), offset

    def _prompt_text(self, number: int, output: RequestOutput) -> str:
        text = self._prompts[number].text
        if text is not None and not self._truncated:
            return text
        tokenizer = self._builder.tokenizer("echo")
        return tokenizer.decode(output.prompt_token_ids, self._skip_special_tokens)


def _sampling_params(context: ServerContext, body: CompletionRequest) -> SamplingParams:
    context.sampling.check_logprobs(body.logprobs, "logprobs")
    if body.prompt_logprobs is not None and body.stream:
        raise RequestError("prompt_logprobs can't be streamed; set stream=false", "prompt_logprobs")
    both = (body.prompt_logprobs, body.logprobs if body.echo else None)
    asked = [value for value in both if value is not None]
    params = context.sampling.params(
        body,
        logprobs=body.logprobs,
        prompt_logprobs=-1 if -1 in asked else max(asked, default=None),
        max_tokens=body.max_tokens,
        default_max_tokens=_DEFAULT_MAX_TOKENS,
    )
    if params.thinking_token_budget is not None:
        params.thinking_marks = context.parsers.thinking_marks()
    return params


ENDPOINTS = (
    Endpoint(
        "/v1/completions",
        ("POST",),
        create_completion,
        CompletionRequest,
        reply=CompletionResponse,
    ),
)
