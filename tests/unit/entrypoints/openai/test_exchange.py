"""One exchange: leaving clients, stops, and who gets the last word."""

import asyncio
import json

import pytest

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import Endpoint, EventReply, Reply
from octavo.entrypoints.openai.errors import ServerStoppingError
from octavo.entrypoints.openai.exchange import EndpointApp, Exchanges, request_id
from octavo.entrypoints.openai.parsing import RequestParser
from octavo.entrypoints.openai.schema.common import RequestBody
from octavo.entrypoints.openai.workers import Workers


class Peer:
    """A client: sends one body, leaves when told, keeps what it gets."""

    def __init__(self, body=b"{}"):
        self.sent = []
        self._messages = asyncio.Queue()
        self._messages.put_nowait({"type": "http.request", "body": body})

    async def receive(self):
        return await self._messages.get()

    async def send(self, message):
        self.sent.append(message)

    def leave(self):
        self._messages.put_nowait({"type": "http.disconnect"})

    @property
    def status(self):
        return self.sent[0]["status"]

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def ended(self):
        return bool(self.sent) and not self.sent[-1].get("more_body", False)


@pytest.fixture
def exchanges():
    return Exchanges()


def start(handler, peer, exchanges, scope=None):
    context = ServerContext(
        engine=None, args=None, workers=Workers(), parser=RequestParser(False), prompts=None,
        conversations=None, parsers=None, sampling=None, responses=None,
        background=None, max_model_len=1,
        model_names=("m",), model_root="m", started=0,
    )  # fmt: skip
    app = EndpointApp(Endpoint("/", ("POST",), handler, RequestBody), context, exchanges)
    scope = {"type": "http", "headers": [], "path_params": {}} | (scope or {})
    return asyncio.create_task(app(scope, peer.receive, peer.send))


async def forever(context, info, body):
    await asyncio.Event().wait()


def streaming(closed):
    async def handler(context, info, body):
        async def run(writer):
            try:
                await writer.write(b"data: 1\n\n")
                await asyncio.Event().wait()
            finally:
                closed.append(True)

        return EventReply(run)

    return handler


async def settle(task, peer=None):
    for _ in range(20):
        await asyncio.sleep(0)
    return task


async def test_an_answer(exchanges):
    async def handler(context, info, body):
        return Reply(b"fine", headers=((b"a", b"b"),))

    peer = Peer(b'{"model": "m"}')
    await start(handler, peer, exchanges)
    assert (peer.status, peer.body, peer.ended) == (200, b"fine", True)
    assert (b"a", b"b") in peer.sent[0]["headers"]
    assert not exchanges.running


async def test_a_client_that_leaves_ends_the_work_without_a_word(exchanges):
    peer = Peer()
    task = await settle(start(forever, peer, exchanges))
    assert len(exchanges.running) == 1
    peer.leave()
    await task
    assert peer.sent == []
    assert not exchanges.running


async def test_a_client_that_leaves_ends_a_stream(exchanges):
    peer, closed = Peer(), []
    task = await settle(start(streaming(closed), peer, exchanges))
    peer.leave()
    await task
    assert closed == [True]


async def test_a_stop_is_told_with_its_own_status(exchanges):
    peer = Peer()
    task = await settle(start(forever, peer, exchanges))
    exchanges.stop(ServerStoppingError("going down"))
    await task
    assert peer.status == 503
    assert json.loads(peer.body)["error"]["message"] == "going down"


async def test_a_stop_is_told_within_a_stream(exchanges):
    peer, closed = Peer(), []
    task = await settle(start(streaming(closed), peer, exchanges))
    exchanges.stop(ServerStoppingError("going down"))
    await task
    assert peer.status == 200
    assert peer.body.endswith(b"data: [DONE]\n\n")
    assert b"going down" in peer.body
    assert (peer.ended, closed) == (True, [True])


async def test_after_a_stop_nothing_new_is_begun(exchanges):
    exchanges.stop(ServerStoppingError("going down"))
    peer = Peer()
    await start(forever, peer, exchanges)
    assert peer.status == 503


async def test_an_error_before_the_first_event_has_its_own_status(exchanges):
    async def handler(context, info, body):
        async def run(writer):
            raise ValueError("secret")

        return EventReply(run)

    peer = Peer()
    await start(handler, peer, exchanges)
    assert peer.status == 500
    assert b"secret" not in peer.body


async def test_an_error_after_the_first_event_ends_the_stream(exchanges):
    async def handler(context, info, body):
        async def run(writer):
            await writer.write(b"data: 1\n\n")
            raise ValueError("secret")

        return EventReply(run)

    peer = Peer()
    await start(handler, peer, exchanges)
    assert peer.body.startswith(b'data: 1\n\ndata: {"error"')
    assert peer.body.endswith(b"data: [DONE]\n\n")
    assert b"secret" not in peer.body


async def test_a_cancellation_from_elsewhere_is_not_swallowed(exchanges):
    peer = Peer()
    task = await settle(start(forever, peer, exchanges))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_model_is_checked_for_every_endpoint(exchanges):
    peer = Peer(b'{"model": "other"}')
    await start(forever, peer, exchanges)
    assert peer.status == 404


def test_request_ids_are_new_or_the_clients_and_stay_the_same():
    scope = {"type": "http", "headers": []}
    assert request_id(scope) == request_id(scope)
    assert request_id({"type": "http", "headers": []}) != request_id(scope)
    assert request_id({"type": "http", "headers": [(b"x-request-id", b"mine")]}) == "mine"
