"""Event bytes, the writer's order, and merging streams."""

import asyncio
import json

import pytest

from octavo.entrypoints.openai.errors import failure
from octavo.entrypoints.openai.schema.common import Usage
from octavo.entrypoints.openai.streaming import (
    Burst,
    ChunkTemplate,
    EventWriter,
    error_event,
    merge,
)


def parse(event):
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    return json.loads(event[6:])


@pytest.mark.parametrize("usage_null", [False, True])
def test_chunks_are_json_with_the_head_of_the_stream(usage_null):
    template = ChunkTemplate('i"d', "kind", 7, "model/ä", usage_null=usage_null)
    chunk = parse(template.start(3) + b'"text":"x"' + template.tail())
    assert chunk.pop("usage", "absent") is (None if usage_null else "absent") or not usage_null
    assert chunk == {
        "id": 'i"d',
        "object": "kind",
        "created": 7,
        "model": "model/ä",
        "choices": [{"index": 3, "text": "x"}],
    }


def test_chunks_with_usage_and_more_fields():
    template = ChunkTemplate("id", "kind", 7, "m", usage_null=True)
    usage = Usage(1, 2, 3)
    assert parse(template.usage(usage)) == {
        "id": "id",
        "object": "kind",
        "created": 7,
        "model": "m",
        "choices": [],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }
    chunk = parse(template.start(0) + b'"a":1' + template.tail(usage, b',"more":[1]'))
    assert chunk["usage"]["total_tokens"] == 3
    assert chunk["more"] == [1]
    assert parse(template.start(0) + b'"a":1' + template.tail(None, b',"more":[1]'))["more"] == [1]


def test_error_event():
    assert parse(error_event(failure(500, "bad")))["error"]["message"] == "bad"


async def test_the_status_goes_out_with_the_first_event():
    sent = []

    async def send(message):
        sent.append(message)

    writer = EventWriter(send)
    assert not writer.started
    await writer.write(b"one")
    await writer.end(b"two")
    assert [message["type"] for message in sent] == [
        "http.response.start",
        "http.response.body",
        "http.response.body",
    ]
    assert [message.get("more_body", False) for message in sent[1:]] == [True, False]
    assert writer.ended


class Direct:
    """A connection whose parts are kept together with what goes the long way."""

    def __init__(self, sent):
        self.sent = sent
        self.is_free = True

    def write(self, part):
        self.sent.append(part)


def direct_writers(count):
    sent, burst = [], Burst()

    async def send(message):
        sent.append(message.get("body"))

    return [EventWriter(send, Direct(sent), burst) for _ in range(count)], sent


async def test_a_burst_sends_what_all_streams_have_at_the_next_turn():
    (one, two), sent = direct_writers(2)
    assert not one.is_free  # the head of the answer is not out yet
    await one.write(b"a")
    await two.write(b"b")
    del sent[:]
    assert one.is_free
    for writer, events in ((one, b"1"), (two, b"2"), (one, b"3")):
        writer.write_now(events)
    assert sent == []
    await asyncio.sleep(0)
    assert sent == [b"13", b"2"]


async def test_what_waits_for_a_burst_comes_before_what_follows_it():
    (writer,), sent = direct_writers(1)
    await writer.write(b"a")
    writer.write_now(b"b")
    await writer.write(b"c")
    writer.write_now(b"d")
    await writer.end(b"e")
    await asyncio.sleep(0)
    assert b"".join(part for part in sent if part) == b"abcde"


async def numbers(count, closed, fail=None):
    try:
        for i in range(count):
            await asyncio.sleep(0)
            yield i
        if fail is not None:
            raise fail
    finally:
        closed.append(count)


@pytest.mark.parametrize("num_streams", [1, 3])
async def test_merge_gives_every_item_in_the_order_of_its_stream(num_streams):
    closed = []
    items = [item async for item in merge([numbers(5, closed) for _ in range(num_streams)])]
    for stream in range(num_streams):
        assert [item for number, item in items if number == stream] == [0, 1, 2, 3, 4]
    assert len(closed) == num_streams


@pytest.mark.parametrize("num_streams", [1, 3])
async def test_an_error_ends_its_stream_only(num_streams):
    error, closed = ValueError("x"), []
    streams = [numbers(2, closed, error)] + [numbers(4, closed) for _ in range(num_streams - 1)]
    items = [item async for item in merge(streams)]
    assert [item for number, item in items if number == 0] == [0, 1, error]
    assert len(items) == 3 + 4 * (num_streams - 1)


@pytest.mark.parametrize("num_streams", [1, 3])
async def test_closing_closes_every_stream(num_streams):
    closed = []
    merged = merge([numbers(1000, closed) for _ in range(num_streams)])
    await anext(merged)
    await merged.aclose()
    assert len(closed) == num_streams


async def test_a_slow_reader_is_felt_by_the_streams():
    taken = 0

    async def counted():
        nonlocal taken
        for i in range(1000):
            taken += 1
            yield i

    merged = merge([counted(), counted()])
    await anext(merged)
    await asyncio.sleep(0.01)
    assert taken < 10
    await merged.aclose()
