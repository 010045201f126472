"""What the pooling endpoints share: their prompts, running them, counting and writing."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.engine.pooling_state import PooledOutput
from octavo.engine.pooling_tokens import PoolingPrompt, PoolingTokens
from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.generation import check_request_id
from octavo.entrypoints.openai.limits import MAX_PROMPTS
from octavo.entrypoints.openai.schema.pooling import (
    ArrayBody,
    PoolingBody,
    PoolingUsage,
    TextsBody,
)
from octavo.entrypoints.scoring import cosine
from octavo.types.errors import GenerationError, RequestError
from octavo.types.pooling_params import PoolingParams

_INLINE_CHARS = 4096  # more is tokenized in a thread
_BFLOAT16_SHIFT = 16


async def pool_texts(
    context: ServerContext, body: TextsBody, params: PoolingParams, request_id: str
) -> list[PooledOutput]:
    """The result of every text of `input`, in their order. Raises RequestError; see `pool`."""
    return await pool(context, body, await _text_prompts(context, body), params, request_id)


async def _text_prompts(context: ServerContext, body: TextsBody) -> list[PoolingPrompt]:
    """The prompts of `input`, in their order. Raises RequestError."""
    texts, ids = _sources(body.input)
    tokens, keep = _tokens(context), body.truncate_prompt_tokens
    if ids:
        return [tokens.ids(each, keep=keep) for each in ids]
    special = body.add_special_tokens is not False

    def encode() -> list[PoolingPrompt]:
        return [
            tokens.text(text, keep=keep, add_special_tokens=special, param="input")
            for text in texts
        ]

    return await _run(context, encode, sum(map(len, texts)))


async def score_pairs(
    context: ServerContext,
    body: PoolingBody,
    pairs: Sequence[tuple[str, str]],
    request_id: str,
) -> tuple[list[float], PoolingUsage]:
    """A score for each pair of texts.

    Of a cross-encoder, which reads both at once; of a model that makes embeddings their cosine.
    """
    if len(pairs) > MAX_PROMPTS:
        raise RequestError(f"{len(pairs)} pairs are more than {MAX_PROMPTS}", "documents")
    tokens, keep = _tokens(context), body.truncate_prompt_tokens
    num_chars = sum(len(first) + len(second) for first, second in pairs)
    pooler = context.engine.config.model.pooler
    if pooler is not None and pooler.scores_pairs:
        params = PoolingParams(task="classify", use_activation=body.use_activation)
        prompts = await _run(
            context,
            lambda: [tokens.pair(*pair, keep=keep, param="documents") for pair in pairs],
            num_chars,
        )
        outputs = await pool(context, body, prompts, params, request_id)
        return [float(output.outputs.data[0]) for output in outputs], usage_of(outputs)
    # A text that comes in several pairs is embedded once.
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    prompts = await _run(
        context,
        lambda: [tokens.text(text, keep=keep, param="documents") for text in texts],
        num_chars,
    )
    outputs = await pool(context, body, prompts, PoolingParams(task="embed"), request_id)
    vectors = {text: output.outputs.data for text, output in zip(texts, outputs, strict=True)}
    return [cosine(vectors[a], vectors[b]) for a, b in pairs], usage_of(outputs)


async def pool(
    context: ServerContext,
    body: PoolingBody,
    prompts: Sequence[PoolingPrompt],
    params: PoolingParams,
    request_id: str,
) -> list[PooledOutput]:
    """The result of every prompt, in their order; if one fails the others are ended.

    Raises what the engine raises.
    """
    check_request_id(body.request_id)
    tasks: list[asyncio.Task[PooledOutput]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks += [
                group.create_task(_pool_one(context, prompt, params, request_id, body.priority))
                for prompt in prompts
            ]
    except* Exception as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
    return [task.result() for task in tasks]


def usage_of(outputs: Sequence[PooledOutput]) -> PoolingUsage:
    """The tokens of all prompts."""
    total = sum(len(output.prompt_token_ids) for output in outputs)
    return PoolingUsage(total, total)


def array_writer(body: ArrayBody) -> Callable[[npt.NDArray[np.float32]], Any]:
    """How arrays are written: as lists of numbers, or as base64 of their bytes."""
    if body.encoding_format != "base64":
        if body.embed_dtype not in (None, "float32"):
            raise RequestError(
                f"embed_dtype={body.embed_dtype!r} is for encoding_format='base64'", "embed_dtype"
            )
        return lambda array: array.tolist()
    order = ">" if body.endianness == "big" else "<"

    def encode(array: npt.NDArray[np.float32]) -> str:
        if body.embed_dtype == "float16":
            array = array.astype(f"{order}f2")
        elif body.embed_dtype == "bfloat16":
            array = _bfloat16(array).astype(f"{order}u2")
        else:
            array = array.astype(f"{order}f4")
        return base64.b64encode(array.tobytes()).decode()

    return encode


def _bfloat16(array: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    """The upper halves of the bits, rounded to the nearest even."""
    bits: npt.NDArray[np.uint32] = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    shift = np.uint32(_BFLOAT16_SHIFT)
    odd = np.bitwise_and(np.right_shift(bits, shift), np.uint32(1))
    rounded: npt.NDArray[np.uint32] = np.right_shift(bits + np.uint32(0x7FFF) + odd, shift)
    return rounded


def _tokens(context: ServerContext) -> PoolingTokens:
    return PoolingTokens.of(context.engine.config, context.engine.tokenizer)


async def _run(
    context: ServerContext, encode: Callable[[], list[PoolingPrompt]], num_chars: int
) -> list[PoolingPrompt]:
    return encode() if num_chars <= _INLINE_CHARS else await context.workers.run(encode)


async def _pool_one(
    context: ServerContext,
    prompt: PoolingPrompt,
    params: PoolingParams,
    request_id: str,
    priority: int | None,
) -> PooledOutput:
    outputs = context.engine.encode(prompt, params, request_id, priority=priority or 0)
    async with aclosing(outputs):
        async for output in outputs:
            return output
    raise GenerationError("the engine ended a request without an output")


def _sources(given: str | list[Any]) -> tuple[list[str], list[list[int]]]:
    """(texts, lists of token ids) of a request, one of them empty."""
    if isinstance(given, str):
        return [given], []
    if not given:
        raise RequestError("input is an empty list; send at least one text", "input")
    kinds = {type(entry) for entry in given}
    if len(kinds) > 1:
        raise RequestError("input mixes texts, token ids and lists; use one kind", "input")
    if kinds == {int}:
        return [], [given]
    if len(given) > MAX_PROMPTS:
        raise RequestError(f"input has {len(given)} entries; at most {MAX_PROMPTS}", "input")
    return (given, []) if kinds == {str} else ([], given)
