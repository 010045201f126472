"""Options of a turn that shape its answer: what it includes, how much of it, which conversation."""

from __future__ import annotations

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.logprobs import LogprobsFormatter
from octavo.entrypoints.openai.schema.responses import ResponsesRequest
from octavo.entrypoints.openai.text_logprobs import TextLogprobs
from octavo.types.errors import RequestError

ENCRYPTED_REASONING = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"

_INCLUDED = (LOGPROBS, ENCRYPTED_REASONING)


def check_options(context: ServerContext, body: ResponsesRequest) -> None:
    """Raises RequestError for what this server has not, or never can have together."""
    for i, name in enumerate(body.include or ()):
        if name not in _INCLUDED:
            raise RequestError(
                f"include[{i}]={name!r:.64}: there are {' and '.join(_INCLUDED)}; others are of "
                "tools and inputs that this server has not",
                "include",
            )
    if body.truncation not in (None, "auto", "disabled"):
        raise RequestError("truncation must be auto or disabled", "truncation")
    if body.max_tool_calls is not None and body.max_tool_calls < 1:
        raise RequestError(
            f"max_tool_calls={body.max_tool_calls} must be at least 1; for no calls set "
            'tool_choice to "none"',
            "max_tool_calls",
        )
    if body.top_logprobs is not None and body.top_logprobs < 0:
        raise RequestError(f"top_logprobs={body.top_logprobs} is below 0", "top_logprobs")
    context.sampling.check_logprobs(body.top_logprobs, "top_logprobs")
    if num_logprobs(body) is not None and context.engine.tokenizer is None:
        raise RequestError("This server runs without a tokenizer; it shows no logprobs", "include")
    if body.conversation is not None and body.previous_response_id is not None:
        raise RequestError(
            "conversation and previous_response_id exclude each other; send one", "conversation"
        )


def num_logprobs(body: ResponsesRequest) -> int | None:
    """How many likeliest tokens to name beside each token; None without log-probabilities."""
    wanted = LOGPROBS in (body.include or ()) or body.top_logprobs
    return (body.top_logprobs or 0) if wanted else None


def text_logprobs(context: ServerContext, num_top: int) -> TextLogprobs | None:
    """What gives texts the log-probabilities of their tokens; None without a tokenizer."""
    tokenizer = context.engine.tokenizer
    if tokenizer is None:
        return None
    formatter = LogprobsFormatter(tokenizer, num_top, False)
    return TextLogprobs(tokenizer, formatter, context.parsers.mark_texts)


def conversation_id(body: ResponsesRequest) -> str | None:
    """The conversation that a turn is part of. Raises RequestError."""
    if not isinstance(body.conversation, dict):
        return body.conversation
    known = body.conversation.get("id")
    if not isinstance(known, str):
        raise RequestError("conversation.id must be a string", "conversation.id")
    return known
