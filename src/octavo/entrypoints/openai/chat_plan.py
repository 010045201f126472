"""ChatPlan: what a chat request comes to: its prompt, its parameters, how its answers are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from octavo.entrypoints.openai.call_structure import call_structure
from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.prompts import Prompt
from octavo.entrypoints.openai.schema.chat import ChatRequest
from octavo.entrypoints.tool_parsers.answer_parser import AnswerParser
from octavo.entrypoints.tool_parsers.answer_parsers import Reading
from octavo.entrypoints.tool_parsers.events import ContentText, Event, ReasoningText
from octavo.entrypoints.tool_parsers.request import read_choice, read_tools
from octavo.entrypoints.tool_parsers.structural_tags import ToolChoice
from octavo.types.errors import RequestError
from octavo.types.outputs import CompletionOutput
from octavo.types.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """A chat request on its way; made by `plan_chat`.

    `parsers` has one for each of the n answers, or none where there is nothing to look for.
    """

    prompt: Prompt
    params: SamplingParams
    parsers: tuple[AnswerParser, ...]
    with_reasoning: bool

    def events(self, completion: CompletionOutput) -> list[Event]:
        """What an output adds to its answer; text that is new in it, as in DELTA outputs."""
        if not self.parsers:
            return [ContentText(completion.text)] if completion.text else []
        events = self.text_events(completion.index, completion.text, completion.token_ids)
        if completion.finished:
            parser = self.parsers[completion.index]
            events += self._told(parser.finish(truncated=completion.finish_reason != "stop"))
        return events

    def text_events(self, index: int, text: str, token_ids: list[int]) -> list[Event]:
        """What a text in its middle adds to an answer that has a parser."""
        return self._told(self.parsers[index].feed(text, token_ids))

    def _told(self, events: list[Event]) -> list[Event]:
        if self.with_reasoning:
            return events
        return [event for event in events if not isinstance(event, ReasoningText)]

    def finish_reason(self, completion: CompletionOutput) -> str | None:
        """Why an answer ended, in the words of the API; ask after `events`."""
        reason = completion.finish_reason
        return self.parsers[completion.index].finish_reason(reason) if self.parsers else reason


async def render_prompt(context: ServerContext, body: ChatRequest) -> Prompt:
    """What the model will read. Raises RequestError."""
    text = await context.workers.run(lambda: context.conversations.render(body))
    (prompt,) = await context.prompts.from_texts(
        [text],
        add_special_tokens=bool(body.add_special_tokens),
        truncate=body.truncate_prompt_tokens is not None,
        param="messages",
    )
    return prompt


async def plan_chat(
    context: ServerContext,
    body: ChatRequest,
    params: SamplingParams,
    most_calls: int | None = None,
) -> ChatPlan:
    """Check what a request says about tools, render its prompt, open its parsers.

    `params` are the request's, without what parsers need. Calls beyond `most_calls` are dropped.
    Raises RequestError.
    """
    tools = read_tools(body.tools)
    choice = read_choice(body.tool_choice, tools)
    calls = choice.mode != "none"
    if calls:
        _check_calls(context, choice)
    parsers = context.parsers
    parallel = body.parallel_tool_calls is not False
    shape = call_structure(parsers.tools, tools, choice, parallel) if calls else None
    if shape is not None and params.structured_outputs is not None:
        raise RequestError(
            "tool_choice and tools with strict say what the answer looks like, and so does "
            "response_format or structured_outputs; leave one out",
            "tool_choice",
        )
    prompt = await render_prompt(context, body)
    if not parsers.reads(calls):
        return ChatPlan(prompt, params, (), True)
    reading = Reading(
        prompt=prompt.text or "",
        prompt_ids=prompt.token_ids,
        calls=calls,
        tools=tools,
        most_calls=most_calls if parallel else 1,
        spelled=shape is not None and shape.structural_tag is not None,
        forced_json=shape is not None and shape.structural_tag is None,
        continued=_continued(body),
        skip_special_tokens=params.skip_special_tokens,
    )
    opened = tuple(parsers.open(reading) for _ in range(params.n))
    changes: dict[str, Any] = {}
    if parsers.needs_special_tokens:
        changes["skip_special_tokens"] = False
    if params.stop_strings:
        changes["stop_scope"] = parsers.stop_scope(reading)
    if params.thinking_token_budget is not None:
        changes["thinking_marks"] = parsers.thinking_marks(reading)
    shape = shape or params.structured_outputs
    if shape is not None:
        marks = parsers.reasoning_marks(reading)
        changes["structured_outputs"] = msgspec.structs.replace(shape, reasoning=marks)
    params = msgspec.structs.replace(params, **changes)
    return ChatPlan(prompt, params, opened, body.include_reasoning is not False)


def _check_calls(context: ServerContext, choice: ToolChoice) -> None:
    """Refuse calls that nobody would read."""
    if context.parsers.tools is None or (
        choice.mode == "auto" and context.args.enable_auto_tool_choice is False
    ):
        raise RequestError(
            "tools: this server does not look for tool calls; start it with --tool-call-parser "
            "(and without --no-enable-auto-tool-choice), leave tools out, or set tool_choice to "
            '"none" to only show them to the model',
            "tools",
        )


def _continued(body: ChatRequest) -> str | None:
    """The text of the message that the answer goes on with."""
    if not body.continue_final_message:
        return None
    content = body.messages[-1].get("content")
    return content if isinstance(content, str) else ""
