"""Reading event streams in pieces of any size."""

import random

import pytest

from octavo.bench.http_client import EventReader, HTTPClient, Result

STREAM = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
    b": a comment\n\n"
    b'data: {"choices":[{"index":0,"text":"b"}],"usage":null}\n\n'
    b'data: {"choices":[{"index":0,"text":"","finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
    b"data: [DONE]\n\n"
)


@pytest.mark.parametrize("seed", range(5))
def test_pieces_of_any_size_give_the_same_result(seed):
    rng = random.Random(seed)
    result = Result()
    reader = EventReader(result)
    at, now = 0, 0.0
    while at < len(STREAM):
        size = rng.randint(1, 60)
        reader.feed(STREAM[at : at + size], now)
        at, now = at + size, now + 1
    assert reader.complete
    assert len(result.arrivals) == 2
    assert (result.prompt_tokens, result.output_tokens) == (3, 2)
    assert result.error is None


def test_times_are_those_of_the_bytes_that_end_an_event():
    result = Result()
    reader = EventReader(result)
    reader.feed(b'data: {"choices":[{"text":"a"}', 1.0)
    reader.feed(b']}\n\ndata: {"choices":[{"text":"b"}]}\n\n', 2.0)
    assert result.arrivals == [2.0, 2.0]


@pytest.mark.parametrize("error", [b'{"message": "gone", "code": 500}', b'"gone"'])
def test_an_error_event(error):
    result = Result()
    EventReader(result).feed(b'data: {"error": ' + error + b"}\n\n", 0.0)
    assert result.error == "gone"


async def test_no_server():
    result = await HTTPClient("http://127.0.0.1:9").stream("/v1/completions", b"{}")
    assert result.error
    assert result.end >= result.start
