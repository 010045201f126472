"""/v1/responses: OpenAI's API of turns, with the conversation kept by the server if wanted."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from octavo.entrypoints.openai.background import EventLog
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
from octavo.entrypoints.openai.errors import Failure, describe
from octavo.entrypoints.openai.event_mirror import StoredEvents
from octavo.entrypoints.openai.generation import collect, follow
from octavo.entrypoints.openai.response_writer import ResponseWriter
from octavo.entrypoints.openai.responses_chat import chat_fields, input_items, messages_of
from octavo.entrypoints.openai.responses_options import (
    ENCRYPTED_REASONING,
    check_options,
    conversation_id,
    num_logprobs,
    text_logprobs,
)
from octavo.entrypoints.openai.schema.responses import (
    DeletedResponse,
    InputItems,
    Response,
    ResponsesRequest,
    StoredResponse,
)
from octavo.entrypoints.openai.stored_conversations import load_conversation, note_turn
from octavo.entrypoints.openai.stored_responses import (
    PREFIX,
    UNFINISHED,
    ResponseKeeper,
    delete_response,
    load_response,
    store_key,
)
from octavo.entrypoints.openai.streaming import EventSink, StreamForm, named_event
from octavo.types.errors import GenerationError, RequestError

_CANCEL_POLLS = 40  # looks at a response that another process ends, 50 ms apart
_NUMBER = re.compile(r"[0-9]{1,9}")


async def create_response(
    context: ServerContext, info: RequestInfo, body: ResponsesRequest
) -> Reply | EventReply:
    """Answer a turn."""
    check_options(context, body)
    before: list[dict[str, Any]] = []
    in_conversation = conversation_id(body)
    if in_conversation is not None:
        stored = await load_conversation(context, info, in_conversation, "conversation")
        before = messages_of(stored.items)
    if body.previous_response_id is not None:
        name = "previous_response_id"
        before = (await load_response(context, info, body.previous_response_id, name)).messages
    items = input_items(body.input)
    messages = [*before, *messages_of(items)]
    run = ChatRun(context, chat_fields(body, messages), body.field_names())
    response = _new_response(context, body)
    if response.background:
        context.background.check_room()
    if body.truncation == "auto":
        await run.leave_out_oldest()
    logprobs = num_logprobs(body)
    plan, outputs = await run.start(response.id, logprobs=logprobs, most_calls=body.max_tool_calls)
    writer = ResponseWriter(
        plan,
        response,
        logprobs=None if logprobs is None else text_logprobs(context, logprobs),
        pack_reasoning=ENCRYPTED_REASONING in (body.include or ()),
    )
    items = _with_ids(items)

    async def extend_conversation() -> None:
        if in_conversation is not None:
            await note_turn(context, info, in_conversation, [*items, *response.output])

    keeper = ResponseKeeper(
        context, info, StoredResponse(response, items, messages), extend_conversation
    )
    await keeper.keep()

    form = StreamForm(writer.error, b"")

    async def stream(events: EventSink) -> None:
        try:
            await follow(events, outputs, writer, response.id, form=form, before_end=keeper.keep)
        finally:
            await keeper.settle()

    async def write(log: EventLog) -> None:
        response.status = "in_progress"
        try:
            await follow(log, outputs, writer, response.id, form=form, before_end=keeper.keep)
        except asyncio.CancelledError:
            await log.end(writer.cut())
        except Exception as error:
            await log.end(writer.error(describe(error, response.id)))
        await keeper.settle()

    if response.background:
        queued = json_reply(response)
        log = context.background.start(keeper.key, write)
        return EventReply(lambda events: _replay(log, -1, events)) if body.stream else queued
    if body.stream:
        return EventReply(stream)
    try:
        writer.whole((await collect(outputs, 1))[0])
        await keeper.keep()
    except GenerationError:
        response.status = "failed"
        raise
    finally:
        await keeper.settle()
    return json_reply(response)


async def get_response(context: ServerContext, info: RequestInfo, body: None) -> Reply | EventReply:
    """A stored response; with ?stream=true, the events of one that was begun in the background.

    They begin after the one that ?starting_after= names, and go on until the response ends.
    """
    after = _stream_position(info)
    response_id = info.path_params["response_id"]
    stored = await load_response(context, info, response_id)
    if after is None:
        return json_reply(stored.response)
    response = stored.response
    log = await context.background.events(
        store_key(info, response_id),
        may_begin=response.background and response.status in UNFINISHED,
    )
    if log is None:
        raise RequestError(
            "The events of this response are not kept: it was not begun with background=true, or "
            "they were too old; retrieve it without stream",
            "stream",
        )
    return EventReply(lambda events: _replay(log, after, events))


async def forget_response(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """Forget a stored response."""
    response_id = info.path_params["response_id"]
    await delete_response(context, info, response_id)
    return json_reply(DeletedResponse(response_id))


async def list_input_items(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """The input of a stored response."""
    _refuse_query(info.query)
    items = (await load_response(context, info, info.path_params["response_id"])).input
    ids = [item["id"] for item in items]
    return json_reply(
        InputItems(data=items, first_id=ids[0] if ids else None, last_id=ids[-1] if ids else None)
    )


async def cancel_response(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """End a response that is being written; the state it ends in."""
    response_id = info.path_params["response_id"]
    stored = await load_response(context, info, response_id)
    if stored.response.status in UNFINISHED:
        if await context.background.cancel(store_key(info, response_id)):
            stored = await load_response(context, info, response_id)
        else:
            await context.engine.abort(response_id)
    for _ in range(_CANCEL_POLLS):
        if stored.response.status not in UNFINISHED:
            break
        await asyncio.sleep(0.05)
        stored = await load_response(context, info, response_id)
    return json_reply(stored.response)


def _new_response(context: ServerContext, body: ResponsesRequest) -> Response:
    if body.request_id is not None and body.store is not False:
        # An id that clients choose could overwrite what is stored under it.
        raise RequestError("request_id is for responses with store=false", "request_id")
    store = body.store is not False and context.args.responses_store_size > 0
    if body.background and not store:
        raise RequestError("background=true needs a response that is stored", "background")
    return Response(
        id=PREFIX + (body.request_id or uuid.uuid4().hex),
        created_at=int(time.time()),
        status="queued" if body.background else "in_progress",
        background=bool(body.background),
        conversation=_shown_conversation(body),
        model=body.model or context.model_names[0],
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        max_tool_calls=body.max_tool_calls,
        metadata=body.metadata or {},
        parallel_tool_calls=body.parallel_tool_calls is not False,
        previous_response_id=body.previous_response_id,
        reasoning=body.reasoning or {},
        store=store,
        temperature=body.temperature,
        text=body.text or {"format": {"type": "text"}},
        tool_choice=body.tool_choice or "auto",
        tools=body.tools or [],
        top_logprobs=body.top_logprobs or 0,
        top_p=body.top_p,
        truncation=body.truncation or "disabled",
        user=body.user,
        output=[],
    )


def _shown_conversation(body: ResponsesRequest) -> dict[str, str] | None:
    known = conversation_id(body)
    return None if known is None else {"id": known}


def _with_ids(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"id": f"item_{uuid.uuid4().hex}", **item} for item in items]


async def _replay(log: EventLog | StoredEvents, after: int, events: EventSink) -> None:
    """Send what a log holds and will hold."""
    async with aclosing(log.read(after)) as parts:
        async for part in parts:
            await events.write(part)
    await events.end(b"")


def _stream_position(info: RequestInfo) -> int | None:
    """After which event a stream of the past begins; None if none is wanted."""
    query = dict(info.query)
    wanted = query.pop("stream", "false").lower()
    if wanted not in ("true", "false"):
        raise RequestError("stream must be true or false", "stream")
    if query.get("include_obfuscation", "").lower() == "false":
        del query["include_obfuscation"]  # none is sent
    after = query.pop("starting_after", None)
    _refuse_query(query)
    if after is not None and not (wanted == "true" and _NUMBER.fullmatch(after)):
        raise RequestError(
            "starting_after must be the sequence_number of an event, with stream=true",
            "starting_after",
        )
    if wanted == "false":
        return None
    return -1 if after is None else int(after)


def _refuse_query(query: Mapping[str, str]) -> None:
    """Other query parameters of the API (pages, encrypted reasoning) are not there."""
    for name in query:
        raise RequestError(f"the query parameter {name!r:.64} is not supported", name[:64])


def _error_event(failure: Failure) -> bytes:
    detail = failure.detail
    body = {
        "type": "error",
        "sequence_number": 0,
        "code": str(detail.code),
        "message": detail.message,
        "param": detail.param,
    }
    return named_event("error", body)


_ERRORS = ErrorForm(lambda failure: failure.body, StreamForm(_error_event, b""))
_ONE = "/v1/responses/{response_id}"

ENDPOINTS = (
    Endpoint(
        "/v1/responses",
        ("POST",),
        create_response,
        ResponsesRequest,
        reply=Response,
        errors=_ERRORS,
    ),
    Endpoint(_ONE, ("GET",), get_response, reply=Response, streams_by_query=True),
    Endpoint(_ONE, ("DELETE",), forget_response, reply=DeletedResponse),
    Endpoint(f"{_ONE}/input_items", ("GET",), list_input_items, reply=InputItems),
    Endpoint(f"{_ONE}/cancel", ("POST",), cancel_response, reply=Response),
)
