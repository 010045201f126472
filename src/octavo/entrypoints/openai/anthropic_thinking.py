"""Anthropic's `thinking` -> template variables and a budget of tokens, whichever the model has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.entrypoints.openai.schema.messages import CountTokensRequest, MessagesRequest
from octavo.types.errors import RequestError

MIN_BUDGET = 1024  # tokens; as in Anthropic's API


def thinking_fields(
    body: CountTokensRequest, switches: Sequence[str], has_marks: bool
) -> dict[str, Any]:
    """The chat fields that a request's `thinking` comes to.

    `switches` are the variables by which the template is told whether to think. A model that has
    none is kept from thinking by a budget of no tokens, where it is known how its thoughts begin
    and end (`has_marks`). Raises RequestError.
    """
    thinking = body.thinking
    if thinking is None:
        return {}
    fields: dict[str, Any] = {}
    if switches:
        wanted = dict.fromkeys(switches, thinking.type != "disabled")
        fields["chat_template_kwargs"] = wanted | (body.chat_template_kwargs or {})
    if thinking.type == "enabled":
        fields["thinking_token_budget"] = _budget(body)
    elif thinking.budget_tokens is not None:
        raise RequestError(
            f"thinking.budget_tokens is for thinking.type 'enabled', not {thinking.type!r}",
            "thinking.budget_tokens",
        )
    elif thinking.type == "disabled" and not switches and has_marks:
        fields["thinking_token_budget"] = 0
    return fields


def _budget(body: CountTokensRequest) -> int:
    budget = None if body.thinking is None else body.thinking.budget_tokens
    if budget is None:
        raise RequestError(
            "thinking.budget_tokens is missing; thinking.type 'enabled' needs it, 'adaptive' does "
            "not",
            "thinking.budget_tokens",
        )
    if budget < MIN_BUDGET:
        raise RequestError(
            f"thinking.budget_tokens={budget} is below the least budget, {MIN_BUDGET}; raise it, "
            "or set thinking.type to 'disabled'",
            "thinking.budget_tokens",
        )
    if isinstance(body, MessagesRequest) and budget >= body.max_tokens:
        raise RequestError(
            f"thinking.budget_tokens={budget} must be below max_tokens={body.max_tokens}, which "
            "counts the tokens of thoughts too",
            "thinking.budget_tokens",
        )
    return budget
