"""What chat and completions have in common: starting requests, following them, counting tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from octavo.engine.collector import OutputTap
from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.errors import describe
from octavo.entrypoints.openai.prompts import Prompt
from octavo.entrypoints.openai.schema.common import GenerationBody, PromptTokensDetails, Usage
from octavo.entrypoints.openai.streaming import OPENAI_STREAM, EventSink, StreamForm, merge
from octavo.types.errors import GenerationError, RequestError
from octavo.types.outputs import RequestOutput
from octavo.types.sampling_params import SamplingParams
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

_MAX_ID = 256  # characters of a client's id


@dataclass(frozen=True, slots=True)
class Outputs:
    """The outputs of several prompts, each with its prompt's number."""

    items: AsyncGenerator[tuple[int, RequestOutput | Exception], None]
    tap: OutputTap  # of the prompt, if there is only one


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What a stream carries beside the text."""

    include_usage: bool  # one chunk at the end
    continuous_usage: bool  # usage so far in every chunk

    @classmethod
    def of(cls, body: GenerationBody, force_usage: bool) -> StreamSettings:
        """As the request and the server say. Raises RequestError for options of no stream."""
        options = body.stream_options
        if options is None:
            return cls(force_usage, False)
        if not body.stream:
            raise RequestError("stream_options is only for stream=true", "stream_options")
        include = bool(options.include_usage) or force_usage
        return cls(include, include and bool(options.continuous_usage_stats))


class UsageCounter:
    """Counts the tokens of a request that may hold several prompts."""

    def __init__(self, report_cached: bool) -> None:
        self._report_cached = report_cached
        self._prompt_tokens: dict[int, int] = {}
        self._cached_tokens: dict[int, int] = {}
        self._completion_tokens = 0

    def note(self, number: int, output: RequestOutput) -> None:
        """Count the news of prompt `number`."""
        self._prompt_tokens[number] = len(output.prompt_token_ids)
        if output.num_cached_tokens is not None:
            self._cached_tokens[number] = output.num_cached_tokens
        for completion in output.outputs:
            self._completion_tokens += len(completion.token_ids)

    def note_tokens(self, num_tokens: int) -> None:
        """Count tokens of an output that tells nothing else."""
        self._completion_tokens += num_tokens

    @property
    def usage(self) -> Usage:
        """The count so far."""
        prompt = sum(self._prompt_tokens.values())
        cached = sum(self._cached_tokens.values())
        return Usage(
            prompt,
            self._completion_tokens,
            prompt + self._completion_tokens,
            PromptTokensDetails(cached) if self._report_cached else None,
        )


class RequestOptions(Protocol):
    """The fields of a request that concern its running and not its text."""

    request_id: str | None
    priority: int | None
    cache_salt: str | None


def start(
    context: ServerContext,
    body: RequestOptions,
    prompts: list[Prompt],
    params: SamplingParams,
    *,
    response_id: str,
    limited: bool,
) -> Outputs:
    """The outputs of all prompts, once somebody iterates; `limited`: the client set max_tokens.

    Raises RequestError.
    """
    check_request_id(body.request_id)
    if context.engine.config.observability.enable_log_requests:
        _log(context, response_id, prompts)
    streams = []
    tap = OutputTap()
    for prompt in prompts:
        source: dict[str, str | list[int]] = {"prompt_token_ids": prompt.token_ids}
        if prompt.text is not None:
            source["prompt"] = prompt.text
        streams.append(
            context.engine.generate(
                source,
                params if limited else context.sampling.with_room(params, len(prompt.token_ids)),
                response_id,
                priority=body.priority or 0,
                cache_salt=body.cache_salt,
                tap=tap if len(prompts) == 1 else None,
            )
        )
    return Outputs(merge(streams), tap)


def check_request_id(request_id: str | None) -> None:
    """Raises RequestError for a client's id that is too long."""
    if request_id is not None and len(request_id) > _MAX_ID:
        raise RequestError(
            f"request_id has {len(request_id)} characters; at most {_MAX_ID}", "request_id"
        )


class ChoiceWriter(Protocol):
    """Turns outputs into the events of one response."""

    def events(self, number: int, output: RequestOutput) -> bytes:
        """The events of an output of prompt `number`; b"" if there is nothing to tell."""

    def abandon(self, number: int) -> bytes:
        """The finish markers of the choices of prompt `number` that are still open."""

    def last(self) -> bytes:
        """The events before the end mark."""


# (sequence of the only prompt, delta of its text, tokens in it) -> the events that tell of it
TextEvents = Callable[[int, str, list[int]], bytes]


def _text_taker(
    writer: EventSink, text_events: TextEvents
) -> Callable[[int, str, list[int]], bool]:
    def take_text(index: int, text: str, token_ids: list[int]) -> bool:
        if not writer.is_free:
            return False
        events = text_events(index, text, token_ids)
        if events:
            writer.write_now(events)
        return True

    return take_text


async def follow(
    writer: EventSink,
    outputs: Outputs,
    choices: ChoiceWriter,
    response_id: str,
    *,
    form: StreamForm = OPENAI_STREAM,
    before_end: Callable[[], Awaitable[None]] | None = None,
    text_events: TextEvents | None = None,
) -> None:
    """Stream outputs as events: one write per output. `before_end` is awaited before the last.

    `text_events` is a quicker way to the events of a delta, for answers that tell nothing else.

    An error before the first event is raised, to be answered with its own status. A later one is
    told within the stream, and the other prompts go on.
    """

    def take(output: RequestOutput) -> bool:
        if not writer.is_free or _first_error(output) is not None:
            return False
        events = choices.events(0, output)
        if events:
            writer.write_now(events)
        return True

    outputs.tap.take = take
    if text_events is not None:
        outputs.tap.take_text = _text_taker(writer, text_events)
    failed: set[int] = set()
    async with aclosing(outputs.items) as items:
        async for number, item in items:
            error = item if isinstance(item, Exception) else _first_error(item)
            if error is not None and not writer.started:
                raise error
            events = (
                choices.abandon(number)
                if isinstance(item, Exception)
                else choices.events(number, item)
            )
            if error is not None and not (number in failed and isinstance(error, GenerationError)):
                failed.add(number)
                events = form.error(describe(error, response_id)) + events
            if events:
                await writer.write(events)
    last = choices.last()
    if before_end is not None:
        await before_end()
    await writer.end(last + form.done)


async def collect(outputs: Outputs, num_prompts: int) -> list[RequestOutput]:
    """The final output of every prompt, in their order. Raises what any of them raises."""
    final: list[RequestOutput | None] = [None] * num_prompts
    async with aclosing(outputs.items) as items:
        async for number, item in items:
            if isinstance(item, Exception):
                raise item
            error = _first_error(item)
            if error is not None:
                raise error
            final[number] = item
    complete = [output for output in final if output is not None]
    if len(complete) != num_prompts:
        raise GenerationError("the engine ended a request without an output")
    return complete


def _first_error(output: RequestOutput) -> GenerationError | None:
    for completion in output.outputs:
        if completion.finish_reason == "error":
            told = output.error or "the request failed while it ran"
            return GenerationError(told, output.error_param)
    return None


def _log(context: ServerContext, response_id: str, prompts: list[Prompt]) -> None:
    longest = context.args.max_log_len
    for prompt in prompts if longest else ():
        shown = prompt.token_ids if prompt.text is None else prompt.text
        logger.info("request %s: prompt %r", response_id, shown[:longest])
