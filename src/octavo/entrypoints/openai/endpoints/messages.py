"""/v1/messages and /v1/messages/count_tokens: Anthropic's API."""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.entrypoints.openai.anthropic_chat import chat_fields
from octavo.entrypoints.openai.anthropic_thinking import thinking_fields
from octavo.entrypoints.openai.chat_plan import ChatPlan
from octavo.entrypoints.openai.chat_run import ChatRun
from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import (
    Endpoint,
    ErrorForm,
    EventReply,
    Reply,
    RequestInfo,
    json_reply,
)
from octavo.entrypoints.openai.errors import Failure
from octavo.entrypoints.openai.generation import collect, follow
from octavo.entrypoints.openai.opaque_text import pack, signature
from octavo.entrypoints.openai.schema.messages import (
    CountTokensRequest,
    CountTokensResponse,
    MessagesError,
    MessagesErrorDetail,
    MessagesRequest,
    MessagesResponse,
    MessagesUsage,
)
from octavo.entrypoints.openai.streaming import StreamForm, named_event, to_json
from octavo.entrypoints.tool_parsers.events import (
    CallArguments,
    CallStart,
    ContentText,
    Event,
    ReasoningText,
)
from octavo.types.outputs import CompletionOutput, RequestOutput

_STOP_REASONS = {
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "abort": "end_turn",
    "repetition": "max_tokens",  # the API's only word for an answer that was cut
}
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
}


async def create_message(
    context: ServerContext, info: RequestInfo, body: MessagesRequest
) -> Reply | EventReply:
    """Go on with a conversation."""
    fields = _prompt_fields(context, body) | {
        "max_tokens": body.max_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "stop": body.stop_sequences,
        "stream": body.stream,
        "cache_salt": body.cache_salt,
        "priority": body.priority,
        "request_id": body.request_id,
    }
    run = ChatRun(context, fields, body.field_names())
    response_id = f"msg_{body.request_id or info.id}"
    plan, outputs = await run.start(response_id)
    hide = body.thinking is not None and body.thinking.display == "omitted"
    answer = _Message(plan, response_id, body.model or context.model_names[0], hide)
    if body.stream:
        return EventReply(
            lambda writer: follow(writer, outputs, answer, response_id, form=_ERRORS.stream)
        )
    return json_reply(answer.whole((await collect(outputs, 1))[0]))


async def count_tokens(
    context: ServerContext, info: RequestInfo, body: CountTokensRequest
) -> Reply:
    """How many tokens the model would read."""
    prompt = await ChatRun(context, _prompt_fields(context, body), body.field_names()).prompt()
    return json_reply(CountTokensResponse(len(prompt.token_ids)))


def _prompt_fields(context: ServerContext, body: CountTokensRequest) -> dict[str, Any]:
    marks = context.parsers.thinking_marks()
    has_marks = marks is not None and bool(marks.ends)
    switches = context.conversations.thinking_switches
    return chat_fields(body) | thinking_fields(body, switches, has_marks)


class _Message:
    """Writes one answer, whole or event by event; its thoughts may be hidden in signatures."""

    def __init__(self, plan: ChatPlan, response_id: str, model: str, hide_thoughts: bool) -> None:
        self._plan = plan
        self._id = response_id
        self._model = model
        self._hide_thoughts = hide_thoughts
        self._blocks: list[dict[str, Any]] = []
        self._output_tokens = 0
        self._begun = False
        self._failed = False
        self._open: str | None = None  # the type of the block that is being written
        self._end = b""

    def whole(self, output: RequestOutput) -> MessagesResponse:
        """The response of a request that is not streamed."""
        completion = output.outputs[0]
        self._output_tokens = len(completion.token_ids)
        for event in self._plan.events(completion):
            self._add(event)
        for block in self._blocks:
            if block["type"] == "tool_use":
                block["input"] = _parsed(block.pop("json"))
            elif block["type"] == "thinking":
                block["signature"] = self._signature(block)
                if self._hide_thoughts:
                    block["thinking"] = ""
        message = self._message(output)
        message.content = self._blocks
        message.stop_reason, message.stop_sequence = self._stop(completion)
        return message

    def events(self, number: int, output: RequestOutput) -> bytes:
        """The events of an output."""
        completion = output.outputs[0]
        self._output_tokens += len(completion.token_ids)
        if completion.finish_reason == "error":
            self._failed = True
            return b""
        parts = []
        if not self._begun:
            self._begun = True
            start = {"type": "message_start", "message": self._message(output)}
            parts += [named_event("message_start", start), named_event("ping", {"type": "ping"})]
        parts += [self._delta(event) for event in self._plan.events(completion)]
        if completion.finished:
            self._end = self._ending(output, completion)
        return b"".join(parts)

    def abandon(self, number: int) -> bytes:
        """Nothing follows the error."""
        self._failed = True
        return b""

    def last(self) -> bytes:
        """The end of the message; after an error there is none."""
        return b"" if self._failed else self._end

    def _message(self, output: RequestOutput) -> MessagesResponse:
        return MessagesResponse(
            id=self._id, model=self._model, content=[], usage=self._usage(output)
        )

    def _usage(self, output: RequestOutput) -> MessagesUsage:
        cached = output.num_cached_tokens or 0
        return MessagesUsage(len(output.prompt_token_ids) - cached, self._output_tokens, cached)

    def _stop(self, completion: CompletionOutput) -> tuple[str, str | None]:
        """(stop_reason, stop_sequence)."""
        if isinstance(completion.stop_reason, str):
            return "stop_sequence", completion.stop_reason
        if completion.finish_reason == "stop":
            called = any(block["type"] == "tool_use" for block in self._blocks)
            return "tool_use" if called else "end_turn", None
        return _STOP_REASONS.get(completion.finish_reason or "", "end_turn"), None

    def _add(self, event: Event) -> str | None:
        """Put an event into its block; the type of a block that it begins."""
        match event:
            case CallStart():
                self._blocks.append(
                    {"type": "tool_use", "id": event.id, "name": event.name, "json": ""}
                )
                return "tool_use"
            case CallArguments():
                self._blocks[-1]["json"] += event.text
            case ReasoningText() | ContentText():
                kind = "thinking" if isinstance(event, ReasoningText) else "text"
                begins = not self._blocks or self._blocks[-1]["type"] != kind
                if begins:
                    block = {"type": kind, kind: ""}
                    self._blocks.append(block | ({"signature": ""} if kind == "thinking" else {}))
                self._blocks[-1][kind] += event.text
                return kind if begins else None
        return None

    def _delta(self, event: Event) -> bytes:
        begun = self._add(event)
        index = len(self._blocks) - 1
        parts = []
        if begun is not None:
            parts += [self._close_block(index - 1), _block_start(index, self._blocks[-1])]
            self._open = begun
        delta: dict[str, str] | None = None
        match event:
            case ContentText():
                delta = {"type": "text_delta", "text": event.text}
            case ReasoningText() if not self._hide_thoughts:
                delta = {"type": "thinking_delta", "thinking": event.text}
            case CallArguments():
                delta = {"type": "input_json_delta", "partial_json": event.text}
        if delta is not None:
            parts.append(_block_delta(index, delta))
        return b"".join(parts)

    def _signature(self, block: dict[str, Any]) -> str:
        return (pack if self._hide_thoughts else signature)(block["thinking"])

    def _close_block(self, index: int) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        signed = b""
        if self._blocks[index]["type"] == "thinking":
            text = self._signature(self._blocks[index])
            signed = _block_delta(index, {"type": "signature_delta", "signature": text})
        stop = {"type": "content_block_stop", "index": index}
        return signed + named_event("content_block_stop", stop)

    def _ending(self, output: RequestOutput, completion: CompletionOutput) -> bytes:
        reason, sequence = self._stop(completion)
        delta = {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": self._usage(output),
        }
        return (
            self._close_block(len(self._blocks) - 1)
            + named_event("message_delta", delta)
            + named_event("message_stop", {"type": "message_stop"})
        )


def _block_start(index: int, block: dict[str, Any]) -> bytes:
    shown = {name: value for name, value in block.items() if name != "json"}
    if block["type"] == "tool_use":
        shown["input"] = {}
    else:
        shown[block["type"]] = ""
    body = {"type": "content_block_start", "index": index, "content_block": shown}
    return named_event("content_block_start", body)


def _block_delta(index: int, delta: dict[str, str]) -> bytes:
    body = {"type": "content_block_delta", "index": index, "delta": delta}
    return named_event("content_block_delta", body)


def _parsed(arguments: str) -> Any:
    """A call's input; one that the model did not write to its end stays the text it is."""
    try:
        return msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return {"raw": arguments}


def _error(failure: Failure) -> MessagesError:
    default = "api_error" if failure.status >= 500 else "invalid_request_error"
    kind = _ERROR_TYPES.get(failure.status, default)
    message, param = failure.detail.message, failure.detail.param
    if param is not None and param not in message:
        message = f"{param}: {message}"  # the API has no other place for it
    return MessagesError(error=MessagesErrorDetail(kind, message))


_ERRORS = ErrorForm(
    lambda failure: to_json(_error(failure)),
    StreamForm(lambda failure: named_event("error", _error(failure)), b""),
    MessagesError,
)

ENDPOINTS = (
    Endpoint(
        "/v1/messages",
        ("POST",),
        create_message,
        MessagesRequest,
        reply=MessagesResponse,
        errors=_ERRORS,
    ),
    Endpoint(
        "/v1/messages/count_tokens",
        ("POST",),
        count_tokens,
        CountTokensRequest,
        reply=CountTokensResponse,
        errors=_ERRORS,
    ),
)
