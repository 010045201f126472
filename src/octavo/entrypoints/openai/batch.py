"""run_batch(): a file of requests, each answered as the HTTP server would, many at a time."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import uvloop
from starlette.applications import Starlette
from starlette.types import Message

from octavo.config.engine_args import EngineArgs
from octavo.config.server import ServerArgs
from octavo.engine.async_llm import AsyncLLM
from octavo.entrypoints.openai.app import build_app, build_context
from octavo.entrypoints.openai.endpoint import ENDPOINTS
from octavo.entrypoints.openai.exchange import Exchanges
from octavo.types.errors import ConfigError
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

_PER_SEQUENCE = 2  # requests begun per sequence that runs: enough to keep the batch full
_PROGRESS = 1000  # answers between two lines in the log


class BatchLine(msgspec.Struct):
    """A request: https://platform.openai.com/docs/guides/batch."""

    custom_id: str
    url: str
    body: msgspec.Raw
    method: str = "POST"


class BatchReply(msgspec.Struct):
    """The answer of an endpoint."""

    status_code: int
    request_id: str
    body: msgspec.Raw


class BatchResult(msgspec.Struct):
    """A line of the output."""

    id: str
    custom_id: str
    response: BatchReply
    error: None = None


def run_batch(engine_args: EngineArgs, server_args: ServerArgs, source: Path, target: Path) -> int:
    """Answer every line; returns 1 if some answers are errors, which the output tells.

    The whole input is looked at before the model loads. Raises ConfigError naming the line.
    """
    paths = _paths()
    count = sum(1 for _ in read_lines(source, paths))
    logger.info("%d requests in %s", count, source)
    config = engine_args.create_engine_config(usage="llm")
    # Whoever reads the file may use everything: keys are for the network.
    server_args = dataclasses.replace(server_args, api_key=None, api_key_file=None)
    engine = AsyncLLM(config, clamp_max_tokens=server_args.clamp_max_tokens)
    try:
        with target.open("wb") as output:
            lines = read_lines(source, paths)
            num_failed = uvloop.run(answer_all(engine, server_args, lines, output))
    except OSError as error:
        raise ConfigError(f"output_file={str(target)!r} can't be written: {error}") from None
    finally:
        engine.shutdown()
    logger.info("%d requests answered, %d of them with an error", count, num_failed)
    return 1 if num_failed else 0


def read_lines(source: Path, paths: frozenset[str]) -> Iterator[BatchLine]:
    """The requests of a file. Raises ConfigError for a file or a line that is none."""
    decode = msgspec.json.Decoder(BatchLine).decode
    seen: set[str] = set()
    try:
        with source.open("rb") as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    yield _checked(decode, text, f"{source}:{number}", paths, seen)
    except OSError as error:
        raise ConfigError(f"input_file={str(source)!r} can't be read: {error}") from None


async def answer_all(
    engine: AsyncLLM, args: ServerArgs, lines: Iterator[BatchLine], output: IO[bytes]
) -> int:
    """Answer requests, the output in the order in which they end; how many are errors."""
    app = build_app(build_context(engine, args), Exchanges())
    slots = asyncio.Semaphore(_PER_SEQUENCE * engine.config.scheduler.max_num_seqs)
    counts = {"done": 0, "failed": 0}

    async def answer(line: BatchLine) -> None:
        try:
            result = await _answer(app, line)
        finally:
            slots.release()
        counts["done"] += 1
        counts["failed"] += result.response.status_code != 200
        output.write(msgspec.json.encode(result) + b"\n")
        output.flush()
        if counts["done"] % _PROGRESS == 0:
            logger.info("%d requests answered", counts["done"])

    async with asyncio.TaskGroup() as group:
        for line in lines:
            await slots.acquire()
            group.create_task(answer(line))
    return counts["failed"]


async def _answer(app: Starlette, line: BatchLine) -> BatchResult:
    request_id = uuid.uuid4().hex
    status, body = await _call(app, line.url, bytes(line.body), request_id)
    reply = BatchReply(status, request_id, msgspec.Raw(body or b"null"))
    return BatchResult(f"batch_req_{request_id}", line.custom_id, reply)


async def _call(app: Starlette, path: str, body: bytes, request_id: str) -> tuple[int, bytes]:
    """(status, body) of a request that never saw a socket."""
    sent: list[Message] = []
    pending: list[Message] = [{"type": "http.request", "body": body}]

    async def receive() -> Message:
        if pending:
            return pending.pop()
        await asyncio.Event().wait()  # this client does not leave
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"x-request-id", request_id.encode())],
    }
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


def _checked(
    decode: Any, text: bytes, where: str, paths: frozenset[str], seen: set[str]
) -> BatchLine:
    try:
        line: BatchLine = decode(text)
        stream = msgspec.json.decode(line.body, type=dict[str, Any]).get("stream")
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: {error}") from None
    if line.method != "POST" or line.url not in paths:
        raise ConfigError(
            f"{where}: {line.method} {line.url!r:.128} can't be run; there are: "
            f"{', '.join(sorted(paths))}"
        )
    if stream:
        raise ConfigError(f"{where}: stream can't be true in a file")
    if line.custom_id in seen:
        raise ConfigError(f"{where}: custom_id {line.custom_id!r:.128} comes twice")
    seen.add(line.custom_id)
    return line


def _paths() -> frozenset[str]:
    """What a line may ask: everything that takes a body but what is for administrators."""
    return frozenset(
        endpoint.path
        for name in ENDPOINTS
        for endpoint in ENDPOINTS.get(name)
        if endpoint.schema is not None and not endpoint.is_admin
    )
