"""use_beam_search: a request whose n choices are the n best texts that a beam search finds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any

from octavo.engine.beam_search import BeamSearch, end_tokens, step_params
from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.generation import check_request_id
from octavo.entrypoints.openai.prompts import Prompt
from octavo.entrypoints.openai.schema.common import GenerationBody
from octavo.types.beam_search import BeamSearchParams
from octavo.types.errors import GenerationError, RequestError
from octavo.types.outputs import RequestOutput
from octavo.types.sampling_params import SamplingParams

# What changes how tokens are chosen or when a text ends: a beam search can't do as they say.
_NOT_FOR_BEAMS = (
    "stream",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "stop",
    "stop_token_ids",
    "min_tokens",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "truncate_prompt_tokens",
    "dry_multiplier",
    "response_format",
    "structured_outputs",
    "thinking_token_budget",
    "repetition_detection",
)
_NEUTRAL = SamplingParams()


def beam_search_params(
    body: GenerationBody, params: SamplingParams, max_model_len: int
) -> BeamSearchParams | None:
    """How to search; None if the request wants no beams. Raises RequestError."""
    if not body.use_beam_search:
        if body.length_penalty not in (None, 1):
            raise RequestError(
                f"length_penalty={body.length_penalty} needs use_beam_search=true",
                "length_penalty",
            )
        return None
    for name in _NOT_FOR_BEAMS:
        value = getattr(body, name, None)
        if value and value != getattr(_NEUTRAL, name, None):
            raise RequestError(f"{name} can't be used with use_beam_search; leave it out", name)
    if params.structured_outputs is not None:
        raise RequestError(
            "use_beam_search can't hold an answer to a grammar, as tool_choice or strict tools "
            "ask for; leave one of them out",
            "use_beam_search",
        )
    return BeamSearchParams(
        beam_width=params.n,
        max_tokens=max_model_len if params.max_tokens is None else params.max_tokens,
        ignore_eos=params.ignore_eos,
        temperature=params.temperature,
        length_penalty=1.0 if body.length_penalty is None else body.length_penalty,
        include_stop_str_in_output=params.include_stop_str_in_output,
    )


async def search_beams(
    context: ServerContext,
    body: GenerationBody,
    prompt: Prompt,
    beams: BeamSearchParams,
    response_id: str,
    *,
    skip_special: bool,
) -> RequestOutput:
    """The finished output of one prompt of a request with use_beam_search.

    Raises RequestError, and what the engine raises for one of the requests that it consists of.
    """
    check_request_id(body.request_id)
    engine = context.engine
    search = BeamSearch(
        prompt.token_ids,
        beams,
        end_tokens(engine.config, engine.tokenizer),
        context.max_model_len,
    )
    step = step_params(beams, engine.config.model.max_logprobs)

    async def ask(token_ids: list[int]) -> RequestOutput:
        stream = engine.generate(
            {"prompt_token_ids": token_ids},
            step,
            response_id,
            priority=body.priority or 0,
            cache_salt=body.cache_salt,
        )
        async with aclosing(stream) as outputs:
            async for output in outputs:
                return output
        raise GenerationError("the engine ended a request without an output")

    while search.live:
        search.advance(await _together([ask(token_ids) for token_ids in search.prompts()]))
    return RequestOutput(
        request_id=response_id,
        prompt=prompt.text,
        prompt_token_ids=search.prompt_token_ids,
        outputs=search.results(engine.tokenizer, skip_special=skip_special),
        finished=True,
    )


async def _together(parts: list[Coroutine[Any, Any, RequestOutput]]) -> list[RequestOutput]:
    """All results, in order; with the first error the rest is abandoned."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
