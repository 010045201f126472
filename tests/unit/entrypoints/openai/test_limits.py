"""Bounds on bodies, checked without parsing them."""

import json
import random

import pytest

from octavo.entrypoints.openai.errors import BodyTooLargeError
from octavo.entrypoints.openai.limits import (
    MAX_CONTAINERS,
    MAX_NESTING,
    MAX_VALUES,
    ClientGoneError,
    check_structure,
    read_body,
)
from octavo.types.errors import RequestError


def receive_of(*messages):
    queue = list(messages)

    async def receive():
        return queue.pop(0) if queue else {"type": "http.disconnect"}

    return receive


def parts(*chunks):
    last = len(chunks) - 1
    return [
        {"type": "http.request", "body": chunk, "more_body": i < last}
        for i, chunk in enumerate(chunks)
    ]


def scope(length=None):
    return {"headers": [(b"content-length", str(length).encode())] if length is not None else []}


async def test_a_body_in_parts_is_joined():
    assert await read_body(scope(), receive_of(*parts(b"ab", b"", b"cd"))) == b"abcd"


async def test_a_body_of_the_limit_passes_and_one_byte_more_does_not():
    assert (
        await read_body(scope(), receive_of(*parts(b"12345", b"67890")), limit=10) == b"1234567890"
    )
    with pytest.raises(BodyTooLargeError, match="10 bytes"):
        await read_body(scope(), receive_of(*parts(b"12345", b"678901")), limit=10)


async def test_a_body_somewhat_too_large_is_read_to_its_end():
    receive = receive_of(*parts(b"x" * 8, b"x" * 8))
    with pytest.raises(BodyTooLargeError):
        await read_body(scope(), receive, limit=10)
    assert (await receive())["type"] == "http.disconnect"


async def test_a_body_announced_far_too_large_is_not_read():
    receive = receive_of(*parts(b"x"))
    with pytest.raises(BodyTooLargeError):
        await read_body(scope(21), receive, limit=10)
    assert (await receive())["type"] == "http.request"


async def test_an_endless_body_is_cut_off():
    with pytest.raises(BodyTooLargeError):
        await read_body(scope(), receive_of(*parts(*[b"x" * 9] * 100)), limit=10)


async def test_a_client_that_leaves_midway():
    messages = [{"type": "http.request", "body": b"{", "more_body": True}]
    with pytest.raises(ClientGoneError):
        await read_body(scope(), receive_of(*messages))


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_up_to_the_limit(opening):
    closing = "]" if opening == "[" else "}"
    fine = opening * MAX_NESTING + "1" + closing * MAX_NESTING
    deep = opening * (MAX_NESTING + 1) + "1" + closing * (MAX_NESTING + 1)
    wide = "[" + ",".join(["[[]]"] * 100) + "]"
    check_structure(fine.encode())
    check_structure(wide.encode())
    with pytest.raises(RequestError, match=f"more than {MAX_NESTING} levels"):
        check_structure(deep.encode())


def test_brackets_in_strings_do_not_count():
    text = json.dumps(["[{" * 500, "a\\", '"[' * 100, "]" * 300, "\\\\" + "[" * 200])
    check_structure(text.encode())


def test_a_deep_part_after_tricky_strings_is_found():
    deep = "[" * 100 + "]" * 100
    for start in ['"\\\\"', '"\\""', '"[]\\\\\\""', '""', '"a","b\\\\"']:
        with pytest.raises(RequestError):
            check_structure(f"[{start},{deep}]".encode())


def test_unclosed_brackets_are_too_deep():
    with pytest.raises(RequestError):
        check_structure(b"[" * 50_000)


def test_depth_equals_a_careful_count():
    rng = random.Random(0)

    def value(depth):
        kind = rng.randrange(4) if depth else 3
        if kind == 0:
            return [value(depth - 1) for _ in range(rng.randrange(3))]
        if kind == 1:
            return {rng.choice('ab["{\\'): value(depth - 1) for _ in range(rng.randrange(1, 3))}
        return rng.choice(["", "[", '"]', "\\", "a,b", 1, None])

    def depth_of(item):
        children = item.values() if isinstance(item, dict) else item
        if not isinstance(item, list | dict):
            return 0
        return 1 + max(map(depth_of, children), default=0)

    for _ in range(200):
        item = value(6)
        wrapped = item
        for _ in range(MAX_NESTING - depth_of(item)):
            wrapped = [wrapped, [[], "]"]] if depth_of(item) > 2 else [wrapped]
        check_structure(json.dumps(wrapped).encode())
        with pytest.raises(RequestError):
            check_structure(json.dumps([[wrapped], [1] * 99]).encode())


def test_too_many_values():
    check_structure(b"[" + b"1," * (MAX_VALUES - 1) + b"1]")
    with pytest.raises(RequestError, match="values"):
        check_structure(b"[" + b"1," * (MAX_VALUES + 1) + b"1]")
    # Commas within a text are no values.
    check_structure(b'["' + b"," * (MAX_VALUES + 100) + b'"]')


def test_too_many_containers():
    with pytest.raises(RequestError, match="objects and arrays"):
        check_structure(b"[" + b"{}," * (MAX_CONTAINERS + 1) + b"1]")
