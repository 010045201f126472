"""/v1/responses: OpenAI's API of turns, with the conversation kept by the server if wanted."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import msgspec

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
from octavo.entrypoints.openai.response_writer import ResponseWriter
from octavo.entrypoints.openai.responses_chat import chat_fields, input_items, messages_of
from octavo.entrypoints.openai.schema.responses import (
    DeletedResponse,
    InputItems,
    Response,
    ResponsesRequest,
    StoredResponse,
)
from octavo.entrypoints.openai.streaming import EventWriter, StreamForm, named_event
from octavo.types.errors import GenerationError, MissingError, RequestError

_CANCEL_POLLS = 40  # looks at a response that is to end, 50 ms apart

_decode = msgspec.msgpack.Decoder(StoredResponse).decode
_encode = msgspec.msgpack.Encoder().encode


async def create_response(
    context: ServerContext, info: RequestInfo, body: ResponsesRequest
) -> Reply | EventReply:
    """Answer a turn."""
    before: list[dict[str, Any]] = []
    if body.previous_response_id is not None:
        name = "previous_response_id"
        before = (await _load(context, info, body.previous_response_id, name)).messages
    items = input_items(body.input)
    messages = [*before, *messages_of(items)]
    run = ChatRun(context, chat_fields(body, messages), body.field_names())
    response = _new_response(context, body)
    plan, outputs = await run.start(response.id)
    writer = ResponseWriter(plan, response)
    keeper = _Keeper(context, info, StoredResponse(response, _with_ids(items), messages))
    await keeper.keep()
    if body.stream:
        form = StreamForm(writer.error, b"")

        async def stream(events: EventWriter) -> None:
            try:
                await follow(
                    events, outputs, writer, response.id, form=form, before_end=keeper.keep
                )
            finally:
                await keeper.settle()

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


async def get_response(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """A stored response."""
    _refuse_query(info)
    return json_reply((await _load(context, info, info.path_params["response_id"])).response)


async def delete_response(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """Forget a stored response."""
    response_id = info.path_params["response_id"]
    if not await context.responses.delete(_key(info, response_id)):
        raise _missing(response_id)
    return json_reply(DeletedResponse(response_id))


async def list_input_items(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """The input of a stored response."""
    _refuse_query(info)
    items = (await _load(context, info, info.path_params["response_id"])).input
    ids = [item["id"] for item in items]
    return json_reply(
        InputItems(data=items, first_id=ids[0] if ids else None, last_id=ids[-1] if ids else None)
    )


async def cancel_response(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """End a response that is being written; the state it ends in."""
    response_id = info.path_params["response_id"]
    stored = await _load(context, info, response_id)
    if stored.response.status == "in_progress":
        await context.engine.abort(response_id)
    for _ in range(_CANCEL_POLLS):
        if stored.response.status != "in_progress":
            break
        await asyncio.sleep(0.05)
        stored = await _load(context, info, response_id)
    return json_reply(stored.response)


class _Keeper:
    """Stores a response as it stands, if it is to be stored."""

    def __init__(self, context: ServerContext, info: RequestInfo, stored: StoredResponse) -> None:
        self._context = context
        self._info = info
        self._stored = stored
        self._messages = list(stored.messages)
        self._kept_status = ""

    async def keep(self) -> None:
        """Put its present state into the store."""
        response = self._stored.response
        if not response.store:
            return
        self._stored.messages = self._messages + messages_of(response.output)
        await self._context.responses.put(_key(self._info, response.id), _encode(self._stored))
        self._kept_status = response.status

    async def settle(self) -> None:
        """Store how it ended, if that has not been stored: its client may have left."""
        response = self._stored.response
        if response.status == "in_progress":
            response.status = "cancelled"
        if response.status != self._kept_status:
            await asyncio.shield(self.keep())


def _new_response(context: ServerContext, body: ResponsesRequest) -> Response:
    if body.request_id is not None and body.store is not False:
        # An id that clients choose could overwrite what is stored under it.
        raise RequestError("request_id is for responses with store=false", "request_id")
    return Response(
        id=f"resp_{body.request_id or uuid.uuid4().hex}",
        created_at=int(time.time()),
        model=body.model or context.model_names[0],
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        metadata=body.metadata or {},
        parallel_tool_calls=body.parallel_tool_calls is not False,
        previous_response_id=body.previous_response_id,
        reasoning=body.reasoning or {},
        store=body.store is not False and context.args.responses_store_size > 0,
        temperature=body.temperature,
        text=body.text or {"format": {"type": "text"}},
        tool_choice=body.tool_choice or "auto",
        tools=body.tools or [],
        top_p=body.top_p,
        user=body.user,
        output=[],
    )


def _with_ids(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"id": f"item_{uuid.uuid4().hex}", **item} for item in items]


async def _load(
    context: ServerContext, info: RequestInfo, response_id: str, param: str = "response_id"
) -> StoredResponse:
    record = await context.responses.get(_key(info, response_id))
    if record is None:
        raise _missing(response_id, param)
    return _decode(record)


def _refuse_query(info: RequestInfo) -> None:
    """What the API's query parameters ask for (streams of the past, pages) is not there."""
    for name in info.query:
        raise RequestError(f"the query parameter {name!r:.64} is not supported", name[:64])


def _key(info: RequestInfo, response_id: str) -> str:
    return f"{info.tenant}/{response_id}"


def _missing(response_id: str, param: str = "response_id") -> MissingError:
    return MissingError(f"There is no stored response {response_id!r:.128}", param)


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
    Endpoint(_ONE, ("GET",), get_response, reply=Response),
    Endpoint(_ONE, ("DELETE",), delete_response, reply=DeletedResponse),
    Endpoint(f"{_ONE}/input_items", ("GET",), list_input_items, reply=InputItems),
    Endpoint(f"{_ONE}/cancel", ("POST",), cancel_response, reply=Response),
)
