"""Send requests at their times, from several processes, and collect what came of them.

One process that follows many streams adds its own delays to the latencies it reports; so the
requests are dealt out, and each process has few streams and one event loop of its own.
"""

from __future__ import annotations

import asyncio
import gc
import math
import multiprocessing
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from octavo.bench.http_client import HTTPClient, Result
from octavo.types.errors import OctavoError

_STREAMS_PER_CLIENT = 32
_MAX_CLIENTS = 16
_LEAD = 0.2  # seconds between the clients' being ready and the first request
_REPORT_INTERVAL = 0.5  # seconds between two progress reports of a client


@dataclass(frozen=True)
class Target:
    """Where the requests go."""

    base_url: str
    path: str
    headers: dict[str, str]


@dataclass(frozen=True)
class Timed:
    """A request's body and when to send it, in seconds from the beginning."""

    number: int
    body: bytes
    offset: float


@dataclass(frozen=True, slots=True)
class Ramp:
    """A rate that grows with the requests sent, by equal steps or by equal factors."""

    begin: float  # requests per second
    end: float
    exponential: bool

    def rate(self, progress: float) -> float:
        """Requests per second when this share of the requests has been sent."""
        if self.exponential:
            return self.begin * math.exp(progress * math.log(self.end / self.begin))
        return self.begin + (self.end - self.begin) * progress


def arrival_offsets(
    count: int, rate: float | Ramp, burstiness: float, rng: random.Random
) -> list[float]:
    """Arrival times of `count` requests at `rate` per second, in seconds from the first.

    Gaps are gamma-distributed with shape `burstiness`: 1 makes a Poisson process, less is more
    bursty, more is more even. They are scaled to the rate exactly. An infinite rate sends all at
    once.
    """
    if count == 0 or (isinstance(rate, float) and math.isinf(rate)):
        return [0.0] * count
    ramp = rate if isinstance(rate, Ramp) else Ramp(rate, rate, exponential=False)
    means = [1.0 / ramp.rate(index / max(count - 2, 1)) for index in range(count - 1)]
    gaps = [mean * rng.gammavariate(burstiness, 1.0 / burstiness) for mean in means]
    scale = sum(means) / sum(gaps) if gaps else 1.0
    offsets = [0.0]
    for gap in gaps:
        offsets.append(offsets[-1] + gap * scale)
    return offsets


def choose_num_clients(count: int, max_concurrency: int | None, num_cpus: int) -> int:
    """How many processes: so that none follows many streams, and the server keeps a core."""
    streams = min(count, max_concurrency or count)
    wanted = math.ceil(streams / _STREAMS_PER_CLIENT)
    return max(1, min(wanted, _MAX_CLIENTS, num_cpus - 1, max_concurrency or count))


def run_load(
    target: Target,
    requests: Sequence[Timed],
    *,
    num_clients: int,
    max_concurrency: int | None,
    on_progress: Callable[[int], object],
) -> list[Result]:
    """The results, in the order of the requests; `on_progress` gets the number done since.

    Concurrency is shared out between the processes. Raises OctavoError if one of them dies.
    """
    context = multiprocessing.get_context("spawn")
    processes: list[SpawnProcess] = []
    pipes: list[Connection] = []
    try:
        for client in range(num_clients):
            ours, theirs = context.Pipe()
            share = None
            if max_concurrency is not None:
                share = max_concurrency // num_clients + (client < max_concurrency % num_clients)
            process = context.Process(
                target=_client_main,
                args=(theirs, target, list(requests[client::num_clients]), share),
                daemon=True,
            )
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        for pipe in pipes:
            _receive(pipe)  # ready
        start = time.monotonic() + _LEAD
        for pipe in pipes:
            pipe.send(start)
        results = _collect(pipes, on_progress)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
    return [results[request.number] for request in requests]


def _collect(pipes: list[Connection], on_progress: Callable[[int], object]) -> dict[int, Result]:
    results: dict[int, Result] = {}
    running = list(pipes)
    reported = dict.fromkeys(pipes, 0)
    while running:
        for pipe in wait(running):
            assert isinstance(pipe, Connection)
            message = _receive(pipe)
            if isinstance(message, int):
                done = message
            else:
                done = len(message) - reported[pipe]
                results |= message
                running.remove(pipe)
            reported[pipe] += done
            on_progress(done)
    return results


def _receive(pipe: Connection) -> int | dict[int, Result]:
    try:
        message: int | dict[int, Result] = pipe.recv()
    except EOFError:
        raise OctavoError("a load client died; its output above says why") from None
    return message


def _client_main(
    pipe: Connection, target: Target, requests: list[Timed], max_concurrency: int | None
) -> None:
    """A client process: say that it is ready, wait for the start time, send, report."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    pipe.send(0)
    start = pipe.recv()
    gc.disable()  # a collection would show as a latency
    pipe.send(asyncio.run(_run_client(pipe, target, requests, max_concurrency, start)))


async def _run_client(
    pipe: Connection,
    target: Target,
    requests: list[Timed],
    max_concurrency: int | None,
    start: float,
) -> dict[int, Result]:
    client = HTTPClient(target.base_url, target.headers)
    gate = asyncio.Semaphore(max_concurrency or len(requests) or 1)
    results: dict[int, Result] = {}

    async def send(request: Timed) -> None:
        await asyncio.sleep(start + request.offset - time.monotonic())
        async with gate:
            results[request.number] = await client.stream(target.path, request.body)

    async def report() -> None:
        reported = 0
        while True:
            await asyncio.sleep(_REPORT_INTERVAL)
            pipe.send(len(results) - reported)
            reported = len(results)

    reporter = asyncio.create_task(report())
    await asyncio.gather(*map(send, requests))
    reporter.cancel()
    client.close()
    return results
