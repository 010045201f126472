"""Streams written where their outputs are made tell what the long way tells."""

import asyncio
import json
import random

import pytest

from octavo.config.server import ServerArgs
from octavo.entrypoints.openai.app import build_app, build_context
from octavo.entrypoints.openai.exchange import Exchanges
from octavo.entrypoints.openai.http_protocol import DIRECT_BODY
from support.fake_async_llm import FakeAsyncLLM

CALL = '<tool_call>\n{"name": "find", "arguments": {"text": "a b"}}\n</tool_call>'
TEXT = f"<think>\nhm, Größe\n</think>\n\n東京 it is. {CALL}"
TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]


class Connection:
    """Collects an answer's bytes, the direct ones too; it is free in `share` of the cases."""

    def __init__(self, share):
        self.parts = []
        self.num_direct = 0
        self._share = share
        self._random = random.Random(7)

    @property
    def is_free(self):
        return self._random.random() < self._share

    def write(self, part):
        self.num_direct += 1
        self.parts.append(part)

    async def send(self, message):
        self.parts.append(message.get("body", b""))


async def stream(path, body, share):
    """(events of an answer, how many parts went directly)."""
    args = ServerArgs(tool_call_parser="hermes", reasoning_parser="qwen3")
    app = build_app(build_context(FakeAsyncLLM(), args), Exchanges())
    connection = Connection(share)
    messages = asyncio.Queue()
    data = json.dumps({"stream": True, "request_id": "r", **body}).encode()
    messages.put_nowait({"type": "http.request", "body": data})
    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
    await app(scope | {DIRECT_BODY: connection}, messages.get, connection.send)
    *events, done, rest = b"".join(connection.parts).decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events], connection.num_direct


JOINED = ("text", "content", "reasoning", "reasoning_content", "arguments")
ORDERED = ("token_ids", "tokens", "token_logprobs", "text_offset")


def told(value, path=()):
    """(path to a leaf, leaf) of everything in a JSON value."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from told(part, (*path, name))
    elif isinstance(value, list):
        for part in value:
            yield from told(part, path)
    else:
        yield path, value


def joined(events):
    """What a stream tells, however it was cut: texts joined, other values in their order."""
    whole = {}
    for event in events:
        event.pop("created", None)
        for choice in event.get("choices", [{}]) or [{}]:
            for path, value in told({**event, "choices": choice}):
                kept = whole.setdefault((choice.get("index"), *path), [])
                if path[-1] in JOINED:
                    whole[(choice.get("index"), *path)] = ["".join(kept) + value]
                elif path[-2:] == ("tool_calls", "id"):
                    kept.append(len(value))  # they are random
                elif path[-1] in ORDERED or (value is not None and value not in kept):
                    kept.append(value)
    return whole


COMPLETION = {"prompt": "ab", "max_tokens": 60, "temperature": 0}
CHAT = {"messages": [{"role": "user", "content": "hi"}], "vllm_xargs": {"text": TEXT}}


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize(
    ("body", "is_direct"),
    [
        (COMPLETION, True),
        (COMPLETION | {"n": 3, "stream_options": {"include_usage": True}}, True),
        (COMPLETION | {"stop": ["lazy d", "never"], "echo": True}, True),
        (COMPLETION | {"logprobs": 2}, True),
        (COMPLETION | {"return_token_ids": True, "n": 2}, True),
        (COMPLETION | {"prompt": ["ab", "cd"]}, False),
        (COMPLETION | {"vllm_xargs": {"error_at": 9}}, True),
        (COMPLETION | {"vllm_xargs": {"die_at": 9}}, True),
        (CHAT, True),
        (CHAT | {"tools": TOOLS, "n": 2}, True),
        (CHAT | {"tools": TOOLS, "include_reasoning": False, "stop": ["it is"]}, True),
        (CHAT | {"logprobs": True, "stream_options": {"include_usage": True}}, True),
    ],
)
async def test_a_free_connection_changes_nothing_but_the_way(body, is_direct, share):
    path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
    expected, none = await stream(path, body, share=0.0)
    events, num_direct = await stream(path, body, share)
    assert none == 0
    assert (num_direct > 0) is is_direct
    assert joined(events) == joined(expected)


async def test_usage_so_far_counts_what_went_directly():
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = COMPLETION | {"stream_options": options}
    events, num_direct = await stream("/v1/completions", body, share=1.0)
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == sorted(counts)
    assert counts[-1] == 60
    assert num_direct > 3
