"""Bodies of /v1/conversations."""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.entrypoints.openai.schema.common import RequestBody


class ConversationRequest(RequestBody, kw_only=True):
    """A conversation to keep, and how it begins."""

    items: list[dict[str, Any]] | None = None
    metadata: dict[str, str] | None = None


class ConversationChange(RequestBody, kw_only=True):
    """What is to be noted about a conversation, in place of what was."""

    metadata: dict[str, str] | None = None


class ItemsRequest(RequestBody, kw_only=True):
    """Items to add to a conversation."""

    items: list[dict[str, Any]]


class Conversation(msgspec.Struct, kw_only=True):
    """A conversation, without its items."""

    id: str
    object: str = "conversation"
    created_at: int  # seconds since 1970
    metadata: dict[str, str] = {}


class StoredConversation(msgspec.Struct):
    """What is kept of a conversation."""

    conversation: Conversation
    items: list[dict[str, Any]]


class DeletedConversation(msgspec.Struct):
    """What DELETE answers."""

    id: str
    object: str = "conversation.deleted"
    deleted: bool = True


class ItemList(msgspec.Struct, kw_only=True):
    """A page of a conversation's items."""

    object: str = "list"
    data: list[dict[str, Any]]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False
