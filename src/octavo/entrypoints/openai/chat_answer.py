"""ChatAnswer: writes one response of /v1/chat/completions, whole or chunk by chunk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from octavo.entrypoints.openai.chat_plan import ChatPlan
from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.generation import StreamSettings, UsageCounter
from octavo.entrypoints.openai.logprobs import LogprobsFormatter, prompt_logprobs
from octavo.entrypoints.openai.schema.chat import (
    ChatChoice,
    ChatLogprobs,
    ChatMessage,
    ChatRequest,
    ChatResponse,
    FunctionCall,
    ToolCall,
)
from octavo.entrypoints.openai.streaming import ChunkTemplate, to_json
from octavo.entrypoints.tool_parsers.events import (
    CallArguments,
    CallStart,
    ContentText,
    Event,
    ParsedAnswer,
    ReasoningText,
)
from octavo.types.outputs import CompletionOutput, RequestOutput

_PLAIN_END = b'},"logprobs":null,"finish_reason":null'


class ChatAnswer:
    """See the module; one per request."""

    def __init__(
        self,
        context: ServerContext,
        body: ChatRequest,
        plan: ChatPlan,
        stream: StreamSettings,
        response_id: str,
    ) -> None:
        args, params = context.args, plan.params
        self._plan = plan
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

    @property
    def is_plain(self) -> bool:
        """Whether the chunks between first and last hold a delta and nothing else."""
        return self._logprobs is None and not (self._token_ids or self._stream.continuous_usage)

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

    def text_events(self, index: int, text: str, token_ids: list[int]) -> bytes:
        """The chunk of a text of sequence `index`; see `is_plain`."""
        self._usage.note_tokens(len(token_ids))
        template = self._template
        if not self._plan.parsers:
            return template.text(index, b'"delta":{"content":', text, _PLAIN_END) if text else b""
        delta = _delta(self._plan.text_events(index, text, token_ids))
        if not delta:
            return b""
        return b"".join((template.start(index), b'"delta":{', delta, _PLAIN_END, template.tail()))

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
        answer = ParsedAnswer.of(self._plan.events(completion))
        return ChatChoice(
            index=completion.index,
            message=self._message(answer),
            logprobs=self._chat_logprobs(completion),
            finish_reason=self._plan.finish_reason(completion),
            stop_reason=completion.stop_reason,
            token_ids=completion.token_ids if self._token_ids else msgspec.UNSET,
        )

    def _message(self, answer: ParsedAnswer) -> ChatMessage:
        text: str | None = self._echo + answer.content
        message = ChatMessage(self._role, text)
        if answer.reasoning:
            message.reasoning = message.reasoning_content = answer.reasoning
        if answer.calls:
            message.tool_calls = [
                ToolCall(call.id, FunctionCall(call.name, call.arguments)) for call in answer.calls
            ]
        if not text and (answer.reasoning or answer.calls):
            message.content = None
        return message

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
        delta = b""
        if self._plan.parsers:
            delta = _delta(self._plan.events(completion))
        elif completion.text or not plain:
            delta = b'"content":' + to_json(completion.text)
        if plain and not delta:
            return b""  # a token that is only a part of a character, or of syntax
        parts = [self._template.start(completion.index), b'"delta":{', delta]
        if plain:
            parts.append(_PLAIN_END)
        else:
            parts += (b'},"logprobs":', to_json(self._chat_logprobs(completion)))
            parts += (b',"finish_reason":', to_json(self._plan.finish_reason(completion)))
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


def _delta(events: Sequence[Event]) -> bytes:
    """The fields of a chunk's delta.

    Each call has one entry in it: clients join entries of one index across chunks only.
    """
    if len(events) == 1 and isinstance(events[0], ContentText):
        return b'"content":' + to_json(events[0].text)
    texts: dict[type, list[str]] = {ReasoningText: [], ContentText: []}
    starts: dict[int, CallStart] = {}
    arguments: dict[int, list[str]] = {}
    for event in events:
        match event:
            case ReasoningText() | ContentText():
                texts[type(event)].append(event.text)
            case CallStart():
                starts[event.index] = event
                arguments[event.index] = []
            case CallArguments():
                arguments.setdefault(event.index, []).append(event.text)
    fields = []
    if texts[ReasoningText]:
        text = to_json("".join(texts[ReasoningText]))
        fields.append(b'"reasoning":%b,"reasoning_content":%b' % (text, text))
    if texts[ContentText]:
        fields.append(b'"content":' + to_json("".join(texts[ContentText])))
    if arguments:
        calls = [_call(i, starts.get(i), "".join(pieces)) for i, pieces in arguments.items()]
        fields.append(b'"tool_calls":[' + b",".join(calls) + b"]")
    return b",".join(fields)


def _call(index: int, start: CallStart | None, arguments: str) -> bytes:
    text = to_json(arguments)
    if start is None:
        return b'{"index":%d,"function":{"arguments":%b}}' % (index, text)
    return b'{"index":%d,"id":%b,"type":"function","function":{"name":%b,"arguments":%b}}' % (
        index,
        to_json(start.id),
        to_json(start.name),
        text,
    )


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
