"""Prompts of the wanted lengths."""

import json
import random
from collections import Counter

import pytest

from octavo.bench.datasets import (
    Repetition,
    Shape,
    custom_requests,
    prefix_requests,
    random_requests,
    sharegpt_requests,
)
from octavo.types.errors import ConfigError


class Letters:
    """One token per letter."""

    async def encode(self, text):
        return [ord(letter) for letter in text]

    async def decode(self, ids):
        return "".join(map(chr, ids))


def make_rng():
    return random.Random(7)


@pytest.mark.parametrize("as_text", [False, True])
async def test_random_prompts_have_the_lengths_asked_for(as_text):
    shape = Shape(input_len=20, output_len=5, prefix_len=3, spread=0.0)
    requests = await random_requests(10, shape, Letters(), as_text=as_text, rng=make_rng())
    assert [len(request.prompt) for request in requests] == [23] * 10
    assert {request.prompt_len for request in requests} == {23}
    assert {request.output_len for request in requests} == {5}
    assert {str(request.prompt[:3]) for request in requests} == {str(requests[0].prompt[:3])}
    assert len({str(request.prompt) for request in requests}) == 10


async def test_random_prompts_are_the_same_for_the_same_seed():
    shape = Shape(input_len=20, output_len=5, prefix_len=0, spread=0.5)
    first, second = [
        await random_requests(10, shape, Letters(), as_text=False, rng=make_rng()) for _ in "ab"
    ]
    assert first == second
    lengths = {request.prompt_len for request in first}
    assert len(lengths) > 1
    assert all(10 <= length <= 30 for length in lengths)


async def test_custom_prompts_are_repeated_to_the_number_asked_for(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "ab"}\n\n{"prompt": "cde", "output_tokens": 9}\n')
    requests = await custom_requests(3, str(path), Letters(), output_len=4)
    assert [(r.prompt, r.prompt_len, r.output_len) for r in requests] == [
        ("ab", 2, 4), ("cde", 3, 9), ("ab", 2, 4)
    ]  # fmt: skip


async def test_sharegpt_prompts_have_the_recorded_lengths(tmp_path):
    def talk(*values):
        return {"conversations": [{"from": "x", "value": value} for value in values]}

    path = tmp_path / "talks.json"
    path.write_text(json.dumps([talk("prompt", "answer!"), talk("only"), talk("a", "b"), {}]))
    requests = await sharegpt_requests(2, str(path), Letters(), output_len=None, rng=make_rng())
    assert [(r.prompt, r.output_len) for r in requests] == [("prompt", 7)] * 2


@pytest.mark.parametrize("as_text", [False, True])
async def test_prompts_that_share_beginnings(as_text):
    repetition = Repetition(prefix_len=6, suffix_len=4, num_prefixes=3, output_len=5)
    requests = await prefix_requests(9, repetition, Letters(), as_text=as_text, rng=make_rng())
    beginnings = Counter(str(request.prompt[:6]) for request in requests)
    assert sorted(beginnings.values()) == [3, 3, 3]
    assert len({str(request.prompt) for request in requests}) == 9
    assert {(r.prompt_len, len(r.prompt), r.output_len) for r in requests} == {(10, 10, 5)}
    # Not one prefix after the other.
    assert list(beginnings.elements()) != [str(request.prompt[:6]) for request in requests]


@pytest.mark.parametrize("content", [None, "", "not json", "[]"])
async def test_a_file_without_prompts(tmp_path, content):
    path = tmp_path / "prompts.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=str(path)):
        await custom_requests(3, str(path), Letters(), output_len=4)
