"""CPU time of the HTTP front end per streamed token: one API process, many streams, a stub core.

The stub speaks the engine core's protocol and gives every running request one token per step, so
that all that is measured is on this side of it: messages, detokenizing, server-sent events, HTTP.
The answers are compared with what the stub sent: nothing may be lost, repeated or out of order.

    python benchmarks/front_end_cost.py --streams 500 --tokens 200 --json out.json

With `--peer PYTHON`, a Python that has vLLM, its API process is measured the same way: its own
engine core runs an executor without a model (benchmarks/peer) that gives the same tokens at the
same pace, and `--peer-model` is a folder with the same tokenizer.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import uvloop
import zmq

from octavo.checkpoints.locate import find_model
from octavo.config.engine_args import EngineArgs
from octavo.config.server import ServerArgs
from octavo.engine.async_llm import AsyncLLM
from octavo.engine.core_link import IDENTITY, AttachedCore, ClientAddress
from octavo.engine.serial import Codec, EngineFacts, MessageType
from octavo.entrypoints.openai.app import build_context
from octavo.entrypoints.openai.http_server import HTTPServer
from octavo.entrypoints.openai.sockets import listening_socket
from octavo.types.engine_output import EngineCoreOutput, EngineCoreOutputs, FinishReason

TEXT = "The quick brown fox jumps over the lazy dog; Größe is 東京 and that is all there is. "
MAX_MODEL_LEN = 4096


def config():
    args = EngineArgs(
        load_format="dummy", device="cpu", max_model_len=MAX_MODEL_LEN, max_num_seqs=2048
    )
    return args.create_engine_config(usage="server")


def run_core(address: ClientAddress, step: float) -> None:
    """Answer every request with TEXT's tokens again and again, one token per step."""
    context = zmq.Context()
    inputs = context.socket(zmq.DEALER)
    inputs.setsockopt(zmq.IDENTITY, IDENTITY)
    outputs = context.socket(zmq.PUSH)
    for side, place in ((inputs, address.input), (outputs, address.output)):
        side.setsockopt(zmq.SNDHWM, 0)
        side.setsockopt(zmq.RCVHWM, 0)
        side.connect(place)
    codec = Codec()
    for side in (inputs, outputs):
        side.send_multipart(codec.encode(MessageType.HELLO))
    facts = EngineFacts(1 << 16, 16, 1 << 30, MAX_MODEL_LEN, 16)
    outputs.send_multipart(codec.encode(MessageType.READY, facts))
    script: list[int] = []
    running: dict[str, list[int]] = {}  # id -> [tokens so far, max_tokens]
    due = time.monotonic()
    while True:
        while inputs.poll(max(0, int((due - time.monotonic()) * 1000))):
            kind, payload = codec.decode(inputs.recv_multipart())
            if kind is MessageType.ADD:
                for request in payload:
                    script = script or request.token_ids  # every prompt is TEXT
                    running[request.request_id] = [0, request.max_tokens]
            elif kind is MessageType.ABORT:
                for name in payload:
                    running.pop(name, None)
        due = max(due + step, time.monotonic() - step)
        news = EngineCoreOutputs(timestamp=time.monotonic())
        for name, state in list(running.items()):
            output = EngineCoreOutput(name, [script[state[0] % len(script)]])
            state[0] += 1
            if state[0] == state[1]:
                output.finish_reason = FinishReason.LENGTH
                del running[name]
            news.outputs.append(output)
        if news.outputs:
            outputs.send_multipart(codec.encode(MessageType.OUTPUTS, news))


def run_server(address: ClientAddress, port_file: Path) -> None:
    """The API process as `octavo serve` runs it, attached to the stub."""
    engine = AsyncLLM(config(), core=lambda: AttachedCore(address))
    args = ServerArgs(host="127.0.0.1", port=0, disable_uvicorn_access_log=True)
    with listening_socket(args) as bound:
        port = str(bound.getsockname()[1])
        context = build_context(engine, args)

        async def serve() -> None:
            server = HTTPServer(context, bound, lambda: port_file.write_text(port) and None)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
            await server.run_until_stopped()

        uvloop.run(serve())
    engine.shutdown()


async def read_stream(port: int, request: bytes) -> bytes:
    """Send a request, read to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read(-1)
    writer.close()
    return answer


def check(answer: bytes, expected: str, field: str) -> int:
    """The number of events with text in an answer, which must spell `expected`."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), answer[:300]
    chunks = b""
    while body:  # undo HTTP's chunks
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        chunks += body[:length]
        body = body[length + 2 :]
    texts = []
    for event in chunks.split(b"\n\n"):
        if event.startswith(b"data: {"):
            choice = json.loads(event[6:])["choices"][0]
            texts.append(choice["text"] if field == "text" else choice["delta"].get("content", ""))
    assert "".join(texts) == expected, (len("".join(texts)), len(expected))
    return sum(map(bool, texts))


async def measure(port: int, pid: int, kind: str, streams: int, tokens: int) -> dict[str, float]:
    body = {"max_tokens": tokens, "stream": True, "ignore_eos": True, "temperature": 0}
    if kind == "chat":
        path, field = "/v1/chat/completions", "content"
        messages = [{"role": "user", "content": TEXT}]
        body |= {"messages": messages, "chat_template_kwargs": {}}
    else:
        path, field = "/v1/completions", "text"
        body |= {"prompt": TEXT}
    data = json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
    ]
    request = "\r\n".join([*lines, "", ""]).encode() + data
    (alone,) = await asyncio.gather(read_stream(port, request))
    expected = texts_of(alone, field)
    server = psutil.Process(pid)
    begin, before = time.monotonic(), server.cpu_times()
    answers = await asyncio.gather(*(read_stream(port, request) for _ in range(streams)))
    after = server.cpu_times()
    user, system = after.user - before.user, after.system - before.system
    seconds = time.monotonic() - begin
    events = sum(check(answer, expected, field) for answer in answers)
    total = streams * tokens
    return {
        "streams": streams,
        "tokens_per_stream": tokens,
        "seconds": round(seconds, 2),
        "tokens_per_second": round(total / seconds),
        "cpu_us_per_token": round((user + system) / total * 1e6, 2),
        "user_us_per_token": round(user / total * 1e6, 2),
        "events_per_token": round(events / total, 3),
    }


def texts_of(answer: bytes, field: str) -> str:
    """The text of a stream that ran alone."""
    body = answer.partition(b"\r\n\r\n")[2]
    texts = []
    for line in body.split(b"\n"):
        if line.startswith(b"data: {"):
            choice = json.loads(line[6:])["choices"][0]
            texts.append(choice["text"] if field == "text" else choice["delta"].get("content", ""))
    return "".join(texts)


@contextlib.contextmanager
def octavo_server(step_ms: float) -> Iterator[tuple[int, int]]:
    """(port, process id) of octavo's API process, attached to the stub."""
    with (
        tempfile.TemporaryDirectory(prefix="octavo-") as directory,
        contextlib.ExitStack() as stack,
    ):
        words = [sys.executable, __file__, "--directory", directory, "--step-ms", str(step_ms)]
        quiet = {**os.environ, "OCTAVO_LOGGING_LEVEL": "WARNING"}
        server, _ = [
            stack.enter_context(ended([*words, "--role", role], quiet))
            for role in ("server", "core")
        ]
        port_file = Path(directory) / "port"
        while not (port_file.exists() and port_file.read_text()):
            time.sleep(0.1)
            assert server.poll() is None, "the server did not start"
        yield int(port_file.read_text()), server.pid


@contextlib.contextmanager
def peer_server(args: argparse.Namespace, chat_template: str) -> Iterator[tuple[int, int]]:
    """(port, process id) of vLLM's API process; its engine core runs no model."""
    with socket.socket() as free, tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        template.write(chat_template)
        template.flush()
        flags = {
            "model": args.peer_model,
            "load-format": "dummy",
            "max-model-len": MAX_MODEL_LEN,
            "max-num-seqs": 2048,
            "max-num-batched-tokens": 1 << 16,
            "distributed-executor-backend": "scripted_executor.ScriptedExecutor",
            "chat-template": template.name,
            "host": "127.0.0.1",
            "port": port,
        }
        words = [args.peer, "-m", "vllm.entrypoints.openai.api_server"]
        words += [f"--{name}={value}" for name, value in flags.items()]
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parent / "peer"),
            "FRONT_END_STEP_SECONDS": str(args.step_ms / 1e3),
            "VLLM_LOGGING_LEVEL": "WARNING",
        }
        with ended([*words, "--disable-uvicorn-access-log"], environment) as server:
            while not answers(port):
                time.sleep(0.5)
                assert server.poll() is None, "the peer did not start"
            yield port, server.pid


@contextlib.contextmanager
def ended(words: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen]:
    """A process that is ended afterwards."""
    process = subprocess.Popen(words, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def answers(port: int) -> bool:
    """Whether a server listens there."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--step-ms", type=float, default=50.0, help="time between two tokens")
    parser.add_argument("--kind", nargs="+", default=["completions", "chat"])
    parser.add_argument("--peer", help="a Python with vLLM, to measure beside octavo")
    parser.add_argument("--peer-model", help="a folder with the same tokenizer, for vLLM")
    parser.add_argument("--repeat", type=int, default=1, help="rounds; the sides take turns")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--role", choices=["core", "server"], help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role is not None:
        address = ClientAddress.within(args.directory)
        if args.role == "core":
            run_core(address, args.step_ms / 1e3)
        else:
            run_server(address, Path(args.directory) / "port")
        return
    sides = {"octavo": lambda: octavo_server(args.step_ms)}
    if args.peer is not None:
        model = config().model
        files = find_model(model.model, None, None, weights=False)
        sides["peer"] = lambda: peer_server(args, files.chat_templates()["default"])
    figures: dict[str, dict[str, list[dict[str, float]]]] = {
        kind: {side: [] for side in sides} for kind in args.kind
    }
    for _ in range(args.repeat):
        for side, start in sides.items():
            with start() as (port, pid):
                for kind in args.kind:
                    run = uvloop.run(measure(port, pid, kind, args.streams, args.tokens))
                    print(side, kind, run, file=sys.stderr)
                    figures[kind][side].append(run)
    report = {
        "machine": platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "step_ms": args.step_ms,
        "results": figures,
    }
    print(json.dumps(report, indent=2))
    if args.json is not None:
        args.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
