"""Bodies of requests, and which dataset's options count."""

import json

import pytest

from octavo.bench.datasets import Request
from octavo.bench.serve_options import parse
from octavo.bench.serve_requests import make_body, make_requests


class Letters:
    """One token per letter."""

    async def encode(self, text):
        return [ord(letter) for letter in text]

    async def decode(self, ids):
        return "".join(map(chr, ids))


def test_a_completion():
    options = parse(
        ["--ignore-eos", "--temperature", "0", "--top-k", "5", "--extra-body", '{"x":1}']
    )
    assert json.loads(make_body(options, "m", Request([1, 2], 2, 7))) == {
        "model": "m", "prompt": [1, 2], "max_tokens": 7, "stream": True, "ignore_eos": True,
        "stream_options": {"include_usage": True}, "temperature": 0.0, "top_k": 5, "x": 1,
    }  # fmt: skip


def test_a_chat():
    body = json.loads(make_body(parse(["--backend", "openai-chat"]), "m", Request("hi", 1, 7)))
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert not body.keys() & {"prompt", "temperature", "ignore_eos"}


@pytest.mark.parametrize(
    ("words", "lengths"),
    [("--random-input-len 5 --random-output-len 3", (5, 3)),
     ("--random-input-len 5 --input-len 6 --output-len 2", (6, 2)),
     ("--dataset-name prefix_repetition --prefix-repetition-prefix-len 4 "
      "--prefix-repetition-suffix-len 3 --prefix-repetition-output-len 9", (7, 9))],
)  # fmt: skip
async def test_lengths(words, lengths):
    options = parse([*words.split(), "--num-prompts", "3", "--num-warmups", "1"])
    requests = await make_requests(options, Letters())
    assert [(r.prompt_len, r.output_len) for r in requests] == [lengths] * 4


@pytest.mark.parametrize(
    ("words", "expected"),
    [("", [9, 256]), ("--custom-output-len 4", [9, 4]), ("--output-len 2", [2, 2])],
)
async def test_lengths_of_custom_answers(tmp_path, words, expected):
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "ab", "output_tokens": 9}\n{"prompt": "cd"}\n')
    options = parse(
        ["--dataset-name", "custom", "--dataset-path", str(path), "--num-prompts", "2",
         *words.split()]
    )  # fmt: skip
    requests = await make_requests(options, Letters())
    assert [r.output_len for r in requests] == expected
