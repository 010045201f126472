"""/v1/conversations: lists of items that responses go on from and add to."""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import Endpoint, Reply, RequestInfo, json_reply
from octavo.entrypoints.openai.schema.conversations import (
    Conversation,
    ConversationChange,
    ConversationRequest,
    DeletedConversation,
    ItemList,
    ItemsRequest,
    StoredConversation,
)
from octavo.entrypoints.openai.stored_conversations import (
    add_items,
    change_conversation,
    check_items,
    create_conversation,
    delete_conversation,
    load_conversation,
)
from octavo.types.errors import MissingError, RequestError

_MOST_ITEMS = 100  # of one page
_PAGE = 20  # items of a page whose length nobody named


async def create(context: ServerContext, info: RequestInfo, body: ConversationRequest) -> Reply:
    """Begin a conversation that the server keeps."""
    check_items(body.items or [])
    return json_reply(
        await create_conversation(context, info, body.items or [], body.metadata or {})
    )


async def retrieve(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """A stored conversation, without its items."""
    return json_reply((await load_conversation(context, info, _id(info))).conversation)


async def update(context: ServerContext, info: RequestInfo, body: ConversationChange) -> Reply:
    """Change a conversation's metadata."""

    def change(stored: StoredConversation) -> None:
        stored.conversation.metadata = body.metadata or {}

    return json_reply((await change_conversation(context, info, _id(info), change)).conversation)


async def delete(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """Forget a conversation and its items; responses made in it stay."""
    await delete_conversation(context, info, _id(info))
    return json_reply(DeletedConversation(_id(info)))


async def create_items(context: ServerContext, info: RequestInfo, body: ItemsRequest) -> Reply:
    """Add items at a conversation's end."""
    check_items(body.items)
    added: list[str] = []

    def change(stored: StoredConversation) -> None:
        added[:] = add_items(stored, body.items)

    stored = await change_conversation(context, info, _id(info), change)
    wanted = set(added)
    return json_reply(_page([item for item in stored.items if item["id"] in wanted]))


async def list_items(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """A conversation's items, page by page: ?limit=, ?after=ID, ?order=asc; the newest first."""
    query = dict(info.query)
    order, limit = query.pop("order", "desc"), query.pop("limit", str(_PAGE))
    after = query.pop("after", None)
    for name in query:
        raise RequestError(f"the query parameter {name!r:.64} is not supported", name[:64])
    if order not in ("asc", "desc"):
        raise RequestError("order must be asc or desc", "order")
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= _MOST_ITEMS):
        raise RequestError(f"limit must be a number from 1 to {_MOST_ITEMS}", "limit")
    items = (await load_conversation(context, info, _id(info))).items
    if order == "desc":
        items.reverse()
    first = 0 if after is None else 1 + _position(items, after, "after")
    last = first + int(limit)
    return json_reply(_page(items[first:last], has_more=last < len(items)))


async def retrieve_item(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """One item of a conversation."""
    items = (await load_conversation(context, info, _id(info))).items
    return Reply(msgspec.json.encode(items[_position(items, info.path_params["item_id"])]))


async def delete_item(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """Take an item out of a conversation."""

    def change(stored: StoredConversation) -> None:
        del stored.items[_position(stored.items, info.path_params["item_id"])]

    return json_reply((await change_conversation(context, info, _id(info), change)).conversation)


def _id(info: RequestInfo) -> str:
    return info.path_params["conversation_id"]


def _position(items: list[dict[str, Any]], item_id: str, param: str = "item_id") -> int:
    for i, item in enumerate(items):
        if item["id"] == item_id:
            return i
    raise MissingError(f"The conversation has no item {item_id!r:.128}", param)


def _page(items: list[dict[str, Any]], has_more: bool = False) -> ItemList:
    ids = [item["id"] for item in items] or [None]
    return ItemList(data=items, first_id=ids[0], last_id=ids[-1], has_more=has_more)


_ALL = "/v1/conversations"
_ONE = f"{_ALL}/{{conversation_id}}"
_ITEMS = f"{_ONE}/items"
_ITEM = f"{_ITEMS}/{{item_id}}"

ENDPOINTS = (
    Endpoint(_ALL, ("POST",), create, ConversationRequest, reply=Conversation),
    Endpoint(_ONE, ("GET",), retrieve, reply=Conversation),
    Endpoint(_ONE, ("POST",), update, ConversationChange, reply=Conversation),
    Endpoint(_ONE, ("DELETE",), delete, reply=DeletedConversation),
    Endpoint(_ITEMS, ("POST",), create_items, ItemsRequest, reply=ItemList),
    Endpoint(_ITEMS, ("GET",), list_items, reply=ItemList),
    Endpoint(_ITEM, ("GET",), retrieve_item),
    Endpoint(_ITEM, ("DELETE",), delete_item, reply=Conversation),
)
