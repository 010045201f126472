"""`octavo bench serve`: load on a running server; the figures are named as vLLM's are."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from tqdm import tqdm

from octavo.bench import datasets
from octavo.bench.datasets import LocalTokens, Request, ServerTokens, Shape, Tokens
from octavo.bench.http_client import HTTPClient, Result
from octavo.bench.load import Target, Timed, arrival_offsets, choose_num_clients, run_load
from octavo.bench.metrics import (
    METRICS,
    parse_goodput,
    parse_metrics,
    parse_percentiles,
    summarize,
)
from octavo.bench.report import date_stamp, save
from octavo.bench.serve_options import ServeBenchOptions, parse
from octavo.types.errors import OctavoError

_READY_INTERVAL = 1.0  # seconds between two looks for the server
_MAX_ERRORS = 3  # different errors shown


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; returns 1 if any request failed."""
    options = parse(argv)
    percentiles = parse_percentiles(options.metric_percentiles)
    metrics = parse_metrics(options.percentile_metrics)
    goodput = parse_goodput(options.goodput or ())
    server = asyncio.run(_prepare(options))
    results = _run(options, server)
    figures = summarize(results, percentiles=percentiles, metrics=metrics, goodput=goodput)
    _print(options, server, figures, results)
    if options.save_result:
        print(f"saved to {_save(options, server, figures, results)}")
    return 1 if figures["failed"] else 0


class _Server(msgspec.Struct):
    """What is measured, and what to send to it."""

    model: str
    version: str
    requests: list[Request]


async def _prepare(options: ServeBenchOptions) -> _Server:
    client = HTTPClient(options.url, options.headers)
    try:
        models = await _models(client, options)
        model = options.model or models[0]
        tokens: Tokens = ServerTokens(client, model)
        if options.tokenizer is not None:
            tokens = LocalTokens(options.tokenizer)
        return _Server(model, await _version(client), await _requests(options, tokens))
    finally:
        client.close()


async def _models(client: HTTPClient, options: ServeBenchOptions) -> list[str]:
    """Names that are served; waits for the server if that was asked for."""
    looks_left = options.ready_check_timeout_sec
    while True:
        try:
            answer = json.loads(await client.call("/v1/models"))
            return [card["id"] for card in answer["data"]]
        except OSError as error:
            if not looks_left:
                raise OctavoError(
                    f"no server answers at {options.url} ({error}); start one with `octavo "
                    "serve`, or name another with --base-url"
                ) from None
        looks_left -= 1
        await asyncio.sleep(_READY_INTERVAL)


async def _version(client: HTTPClient) -> str:
    try:
        return str(json.loads(await client.call("/version"))["version"])
    except (OSError, ValueError, KeyError):
        return "unknown"


async def _requests(options: ServeBenchOptions, tokens: Tokens) -> list[Request]:
    rng = random.Random(options.seed)
    count = options.num_prompts + options.num_warmups
    if options.dataset_name == "random":
        shape = Shape(
            options.random_input_len,
            options.random_output_len,
            options.random_prefix_len,
            options.random_range_ratio,
        )
        return await datasets.random_requests(
            count, shape, tokens, as_text=options.is_chat, rng=rng
        )
    path = options.dataset_path or ""
    if options.dataset_name == "sharegpt":
        return await datasets.sharegpt_requests(
            count, path, tokens, output_len=options.output_len, rng=rng
        )
    return await datasets.custom_requests(
        count, path, tokens, output_len=options.output_len or options.random_output_len
    )


def _run(options: ServeBenchOptions, server: _Server) -> list[Result]:
    bodies = [_body(options, server.model, request) for request in server.requests]
    warm, measured = bodies[: options.num_warmups], bodies[options.num_warmups :]
    _send(options, warm, [0.0] * len(warm), "warm-up")
    rng = random.Random(options.seed)
    offsets = arrival_offsets(len(measured), options.rate, options.burstiness, rng)
    return _send(options, measured, offsets, "requests")


def _send(
    options: ServeBenchOptions, bodies: list[bytes], offsets: list[float], what: str
) -> list[Result]:
    if not bodies:
        return []
    num_clients = options.num_clients or choose_num_clients(
        len(bodies), options.max_concurrency, len(os.sched_getaffinity(0))
    )
    with tqdm(total=len(bodies), desc=what, disable=options.disable_tqdm) as bar:
        return run_load(
            Target(options.url, options.path, options.headers),
            [Timed(i, body, at) for i, (body, at) in enumerate(zip(bodies, offsets, strict=True))],
            num_clients=num_clients,
            max_concurrency=options.max_concurrency,
            on_progress=bar.update,
        )


def _body(options: ServeBenchOptions, model: str, request: Request) -> bytes:
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
    if options.temperature is not None:
        body["temperature"] = options.temperature
    return msgspec.json.encode(body | dict(options.extra_body))


def _print(
    options: ServeBenchOptions,
    server: _Server,
    figures: dict[str, float | int],
    results: list[Result],
) -> None:
    print(f"{server.model} at {options.url}{options.path}, server version {server.version}")
    latency_suffixes = tuple(f"_{name}_ms" for name in METRICS)
    for name, value in figures.items():
        if not name.endswith(latency_suffixes):
            print(f"  {name.replace('_', ' '):<28} {_shown(value):>12}")
    for metric, words in METRICS.items():
        suffix = f"_{metric}_ms"
        found = {n.removesuffix(suffix): v for n, v in figures.items() if n.endswith(suffix)}
        if found:
            line = "  ".join(f"{kind} {value:.2f}" for kind, value in found.items())
            print(f"  {words + ', ms':<42} {line}")
    errors = list(dict.fromkeys(result.error for result in results if result.error is not None))
    for error in errors[:_MAX_ERRORS]:
        print(f"  failed: {error}")


def _shown(value: float | int) -> str:
    return str(value) if isinstance(value, int) else f"{value:,.2f}"


def _save(
    options: ServeBenchOptions,
    server: _Server,
    figures: dict[str, float | int],
    results: list[Result],
) -> Path:
    name = options.result_filename or f"serve-{date_stamp()}.json"
    content: dict[str, Any] = {
        "backend": options.backend,
        "endpoint": options.path,
        "label": options.label,
        "model_id": server.model,
        "server_version": server.version,
        "dataset_name": options.dataset_name,
        "num_prompts": options.num_prompts,
        "request_rate": options.request_rate,
        "burstiness": options.burstiness,
        "max_concurrency": options.max_concurrency,
        "seed": options.seed,
        **figures,
    }
    if options.save_detailed:
        begin = min((result.start for result in results), default=0.0)
        content["requests"] = [
            {
                "start": result.start - begin,
                "arrivals": [arrival - begin for arrival in result.arrivals],
                "prompt_tokens": result.prompt_tokens,
                "output_tokens": result.output_tokens,
                "error": result.error,
            }
            for result in results
        ]
    path = Path(options.result_dir) / name
    save(content, path)
    return path
