"""`octavo bench serve`: load on a running server; the figures are named as vLLM's are."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from octavo.bench.datasets import LocalTokens, Request, ServerTokens, Tokens
from octavo.bench.http_client import HTTPClient, Result
from octavo.bench.load import Target, Timed, arrival_offsets, choose_num_clients, run_load
from octavo.bench.metrics import (
    METRICS,
    parse_goodput,
    parse_metrics,
    parse_percentiles,
    summarize,
)
from octavo.bench.plots.chart import save_page
from octavo.bench.report import date_stamp, save
from octavo.bench.serve_options import ServeBenchOptions, pairs, parse
from octavo.bench.serve_plots import make_page
from octavo.bench.serve_requests import make_body, make_requests
from octavo.platforms.detect import usable_cpus
from octavo.types.errors import OctavoError

_READY_INTERVAL = 1.0  # seconds between two looks for the server
_MAX_ERRORS = 3  # different errors shown


@dataclass(frozen=True)
class Outcome:
    """What came of a load test."""

    model: str
    server_version: str
    results: list[Result]
    figures: dict[str, float | int]


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; returns 1 if any request failed."""
    options = parse(argv)
    outcome = measure(options)
    _print(options, outcome)
    if options.save_result:
        print(f"saved to {_save(options, outcome)}")
    facts = [(name.replace("_", " "), _shown(value)) for name, value in outcome.figures.items()]
    for path in options.plot or ():
        title = f"{outcome.model} at {options.url}"
        save_page(make_page(title, facts[:9], outcome.results), path)
        print(f"charts are in {path}")
    return 1 if outcome.figures["failed"] else 0


def measure(options: ServeBenchOptions) -> Outcome:
    """Put the load on the server. Raises ConfigError, or OctavoError if no server answers."""
    model, version, requests = asyncio.run(_prepare(options))
    bodies = [make_body(options, model, request) for request in requests]
    warm, measured = bodies[: options.num_warmups], bodies[options.num_warmups :]
    _send(options, warm, [0.0] * len(warm), "warm-up")
    rate = options.ramp or options.rate
    offsets = arrival_offsets(len(measured), rate, options.burstiness, random.Random(options.seed))
    if options.profile:
        asyncio.run(_tell(options, "/start_profile"))
    results = _send(options, measured, offsets, "requests")
    if options.profile:
        asyncio.run(_tell(options, "/stop_profile"))
    figures = summarize(
        results,
        percentiles=parse_percentiles(options.metric_percentiles),
        metrics=parse_metrics(options.percentile_metrics),
        goodput=parse_goodput(options.goodput or ()),
    )
    return Outcome(model, version, results, figures)


async def _prepare(options: ServeBenchOptions) -> tuple[str, str, list[Request]]:
    """(model, the server's version, requests)."""
    client = HTTPClient(options.url, options.headers)
    try:
        models = await _models(client, options)
        model = options.model or models[0]
        tokens: Tokens = ServerTokens(client, model)
        if options.tokenizer is not None:
            tokens = LocalTokens(options.tokenizer)
        return model, await _version(client), await make_requests(options, tokens)
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


async def _tell(options: ServeBenchOptions, path: str) -> None:
    client = HTTPClient(options.url, options.headers)
    try:
        await client.call(path, b"{}")
    except OSError as error:
        raise OctavoError(
            f"the server does not record traces ({error}); start it with --profiler-config "
            '\'{"profiler": "torch"}\' and --admin-api-key, send that key with --api-key, or leave '
            "--profile out"
        ) from None
    finally:
        client.close()


def _send(
    options: ServeBenchOptions, bodies: list[bytes], offsets: list[float], what: str
) -> list[Result]:
    if not bodies:
        return []
    num_clients = options.num_client_processes or choose_num_clients(
        len(bodies), options.max_concurrency, usable_cpus()
    )
    # A process without a share of the concurrency could not send.
    num_clients = min(num_clients, options.max_concurrency or num_clients)
    with tqdm(total=len(bodies), desc=what, disable=options.disable_tqdm) as bar:
        return run_load(
            Target(options.url, options.path, options.headers),
            [Timed(i, body, at) for i, (body, at) in enumerate(zip(bodies, offsets, strict=True))],
            num_clients=num_clients,
            max_concurrency=options.max_concurrency,
            on_progress=bar.update,
        )


def _print(options: ServeBenchOptions, outcome: Outcome) -> None:
    figures = outcome.figures
    version = outcome.server_version
    print(f"{outcome.model} at {options.url}{options.path}, server version {version}")
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
    errors = dict.fromkeys(result.error for result in outcome.results if result.error is not None)
    for error in list(errors)[:_MAX_ERRORS]:
        print(f"  failed: {error}")


def _shown(value: float | int) -> str:
    return str(value) if isinstance(value, int) else f"{value:,.2f}"


def _save(options: ServeBenchOptions, outcome: Outcome) -> Path:
    name = options.result_filename or f"serve-{date_stamp()}.json"
    content: dict[str, Any] = {
        **pairs("metadata", options.metadata or ()),
        "backend": options.backend,
        "endpoint": options.path,
        "label": options.label,
        "model_id": outcome.model,
        "server_version": outcome.server_version,
        "dataset_name": options.dataset_name,
        "num_prompts": options.num_prompts,
        "request_rate": options.request_rate,
        "ramp_up_strategy": options.ramp_up_strategy,
        "ramp_up_start_rps": options.ramp_up_start_rps,
        "ramp_up_end_rps": options.ramp_up_end_rps,
        "burstiness": options.burstiness,
        "max_concurrency": options.max_concurrency,
        "seed": options.seed,
        **outcome.figures,
    }
    if options.save_detailed:
        begin = min((result.start for result in outcome.results), default=0.0)
        content["requests"] = [
            {
                "start": result.start - begin,
                "arrivals": [arrival - begin for arrival in result.arrivals],
                "prompt_tokens": result.prompt_tokens,
                "output_tokens": result.output_tokens,
                "error": result.error,
            }
            for result in outcome.results
        ]
    path = Path(options.result_dir) / name
    save(content, path)
    return path
