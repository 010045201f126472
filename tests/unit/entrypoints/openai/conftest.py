"""A server's application over a fake engine, and a client that calls it without a socket."""

import contextlib
import json

import httpx
import pytest

from octavo.config.server import ServerArgs
from octavo.entrypoints.openai.app import build_app, build_context
from octavo.entrypoints.openai.exchange import Exchanges
from support.fake_async_llm import FakeAsyncLLM
from support.tiny import fake_config


class Client(httpx.AsyncClient):
    """With helpers for the two endpoints that stream."""

    def __init__(self, engine, args):
        self.engine = engine
        context = build_context(engine, args)
        app = build_app(context, Exchanges())
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        super().__init__(transport=transport, base_url="http://server")

    async def complete(self, prompt="ab", **fields):
        return await self.post("/v1/completions", json={"prompt": prompt, **fields})

    async def chat(self, messages=None, **fields):
        messages = messages or [{"role": "user", "content": "hi"}]
        return await self.post("/v1/chat/completions", json={"messages": messages, **fields})

    async def events(self, reply):
        """The parsed events of a stream that must end with the end mark."""
        assert reply.status_code == 200, reply.text
        assert reply.headers["content-type"].startswith("text/event-stream")
        *events, done, rest = reply.text.split("\n\n")
        assert done == "data: [DONE]"
        assert rest == ""
        return [json.loads(event.removeprefix("data: ")) for event in events]


@pytest.fixture
async def make_client():
    """make_client(**config fields, server={server options}, engine={fake engine's options})."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(server=None, engine=None, **fields):
            config = fake_config(**fields) if fields else None
            llm = FakeAsyncLLM(config, **(engine or {}))
            return await stack.enter_async_context(Client(llm, ServerArgs(**(server or {}))))

        yield make


@pytest.fixture
async def client(make_client):
    return await make_client()
