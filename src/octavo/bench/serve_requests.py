"""What a load test sends: prompts of the chosen dataset, as bodies of the chosen API."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import msgspec

from octavo.bench import datasets
from octavo.bench.datasets import Repetition, Request, Shape, Tokens
from octavo.bench.serve_options import SAMPLING_FIELDS, ServeBenchOptions


async def make_requests(options: ServeBenchOptions, tokens: Tokens) -> list[Request]:
    """The requests of a test, those of its warm-up first. Raises ConfigError."""
    requests = await _requests(options, tokens)
    if options.output_len is None:
        return requests
    return [dataclasses.replace(request, output_len=options.output_len) for request in requests]


async def _requests(options: ServeBenchOptions, tokens: Tokens) -> list[Request]:
    rng = random.Random(options.seed)
    count = options.num_prompts + options.num_warmups
    if options.dataset_name == "random":
        shape = Shape(
            options.input_len or options.random_input_len,
            options.random_output_len,
            options.random_prefix_len,
            options.random_range_ratio,
        )
        return await datasets.random_requests(
            count, shape, tokens, as_text=options.is_chat, rng=rng
        )
    if options.dataset_name == "prefix_repetition":
        repetition = Repetition(
            options.prefix_repetition_prefix_len,
            options.prefix_repetition_suffix_len,
            options.prefix_repetition_num_prefixes,
            options.prefix_repetition_output_len,
        )
        return await datasets.prefix_requests(
            count, repetition, tokens, as_text=options.is_chat, rng=rng
        )
    path = options.dataset_path or ""
    if options.dataset_name == "sharegpt":
        return await datasets.sharegpt_requests(
            count, path, tokens, output_len=options.sharegpt_output_len, rng=rng
        )
    return await datasets.custom_requests(count, path, tokens, output_len=options.custom_output_len)


def make_body(options: ServeBenchOptions, model: str, request: Request) -> bytes:
    """The JSON that asks for a request's answer as a stream."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": request.output_len,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if options.is_chat:
        body["messages"] = [{"role": "user", "content": request.prompt}]
    else:
        body["prompt"] = request.prompt
    if options.ignore_eos:
        body["ignore_eos"] = True
    for name in SAMPLING_FIELDS:
        value = getattr(options, name)
        if value is not None:
            body[name] = value
    return msgspec.json.encode(body | dict(options.extra_body))
