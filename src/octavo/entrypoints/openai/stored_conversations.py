"""Conversations in the store: lists of items that clients and responses add to."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.conversation import MAX_MESSAGES
from octavo.entrypoints.openai.endpoint import RequestInfo
from octavo.entrypoints.openai.responses_chat import messages_of
from octavo.entrypoints.openai.schema.conversations import Conversation, StoredConversation
from octavo.entrypoints.openai.stored_responses import store_key
from octavo.types.errors import MissingError, RequestError
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

MAX_BYTES = 32 << 20  # of one conversation, as stored

_PREFIX = "conv_"
_TEXT_TYPES = {"assistant": "output_text"}  # of a role's text parts; others: input_text

_decode = msgspec.msgpack.Decoder(StoredConversation).decode
_encode = msgspec.msgpack.Encoder().encode


async def create_conversation(
    context: ServerContext,
    info: RequestInfo,
    items: list[dict[str, Any]],
    metadata: Mapping[str, str],
) -> Conversation:
    """Keep a new conversation. Raises RequestError."""
    if context.args.responses_store_size == 0:
        raise RequestError(
            "This server keeps no conversations: it was started with --responses-store-size 0"
        )
    conversation = Conversation(
        id=_PREFIX + uuid.uuid4().hex, created_at=int(time.time()), metadata=dict(metadata)
    )
    stored = StoredConversation(conversation, [])
    add_items(stored, items)
    record = _checked_record(stored)
    await context.responses.put(store_key(info, conversation.id), record)
    return conversation


async def load_conversation(
    context: ServerContext, info: RequestInfo, conversation_id: str, param: str = "conversation_id"
) -> StoredConversation:
    """A stored conversation. Raises MissingError, which names `param`."""
    return _decode(await _record(context, info, conversation_id, param))


async def change_conversation(
    context: ServerContext,
    info: RequestInfo,
    conversation_id: str,
    change: Callable[[StoredConversation], object],
) -> StoredConversation:
    """Change a conversation, whoever else changes it at the same time.

    `change` may be called more than once. Raises MissingError and what `change` raises.
    """
    key = store_key(info, conversation_id)
    while True:
        record = await _record(context, info, conversation_id)
        stored = _decode(record)
        change(stored)
        if await context.responses.swap(key, record, _checked_record(stored)):
            return stored


async def note_turn(
    context: ServerContext, info: RequestInfo, conversation_id: str, items: list[dict[str, Any]]
) -> None:
    """Add what a response was asked and answered, unless the conversation is gone or full."""
    try:
        await change_conversation(
            context, info, conversation_id, lambda stored: add_items(stored, items)
        )
    except (MissingError, RequestError) as error:
        logger.warning("a response was not added to its conversation: %s", error)


async def delete_conversation(
    context: ServerContext, info: RequestInfo, conversation_id: str
) -> None:
    """Forget a conversation. Raises MissingError."""
    await _record(context, info, conversation_id)
    await context.responses.delete(store_key(info, conversation_id))


def add_items(stored: StoredConversation, items: Iterable[Mapping[str, Any]]) -> list[str]:
    """Add items at the end; returns their ids. Those without an id of their own get one."""
    known = {item["id"] for item in stored.items}
    added = []
    for item in items:
        item_id = item.get("id")
        if not isinstance(item_id, str) or item_id in known:
            item_id = f"item_{uuid.uuid4().hex}"
        known.add(item_id)
        added.append(item_id)
        stored.items.append({**_in_full(item), "id": item_id})
    if len(stored.items) > MAX_MESSAGES:
        raise RequestError(
            f"the conversation would have {len(stored.items)} items; at most {MAX_MESSAGES}",
            "items",
        )
    return added


def check_items(items: list[dict[str, Any]]) -> None:
    """Raises RequestError for items that no response could go on from."""
    messages_of(items, "items")


def _in_full(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item with the fields that clients expect of it."""
    full = {"type": "message", "status": "completed", **item}
    content = full.get("content")
    if full["type"] == "message" and isinstance(content, str):
        kind = _TEXT_TYPES.get(full["role"], "input_text")
        part: dict[str, Any] = {"type": kind, "text": content}
        if kind == "output_text":
            part |= {"annotations": [], "logprobs": []}
        full["content"] = [part]
    return full


async def _record(
    context: ServerContext, info: RequestInfo, conversation_id: str, param: str = "conversation_id"
) -> bytes:
    record = await context.responses.get(store_key(info, conversation_id))
    if record is None or not conversation_id.startswith(_PREFIX):
        raise MissingError(f"There is no conversation {conversation_id!r:.128}", param)
    return record


def _checked_record(stored: StoredConversation) -> bytes:
    record = _encode(stored)
    if len(record) > MAX_BYTES:
        raise RequestError(
            f"the conversation would have {len(record)} bytes; at most {MAX_BYTES}", "items"
        )
    return record
