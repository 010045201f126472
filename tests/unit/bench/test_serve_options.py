"""Flags of the load test."""

import pytest

from octavo.bench.load import Ramp
from octavo.bench.serve_options import parse
from octavo.types.errors import ConfigError


def test_defaults():
    options = parse([])
    assert options.url == "http://127.0.0.1:8000"
    assert options.path == "/v1/completions"
    assert options.rate == float("inf")
    assert not options.is_chat
    assert options.headers == {}


def test_flags_as_scripts_write_them():
    words = "--backend openai-chat --base-url http://h:1/p/ --request-rate 2.5 --num-prompts 10"
    words += ' --goodput ttft:100 tpot:20 --ignore-eos --api-key k --extra-body {"top_k":1}'
    options = parse(words.split())
    assert options.url == "http://h:1/p"
    assert options.is_chat
    assert options.rate == 2.5
    assert options.goodput == ("ttft:100", "tpot:20")
    assert options.ignore_eos
    assert options.headers == {"Authorization": "Bearer k"}
    assert options.extra_body == {"top_k": 1}


def test_headers_and_metadata():
    options = parse(["--header", "X-A=1", "Y=a=b", "--api-key", "k", "--metadata", "run=3"])
    assert options.headers == {"Authorization": "Bearer k", "X-A": "1", "Y": "a=b"}


def test_a_rate_that_grows():
    words = "--ramp-up-strategy exponential --ramp-up-start-rps 1 --ramp-up-end-rps 9"
    assert parse(words.split()).ramp == Ramp(1.0, 9.0, exponential=True)
    assert parse([]).ramp is None


@pytest.mark.parametrize(
    "words",
    ["--request-rate 0", "--num-prompts x", "--backend tgi", "--num-promts 5",
     "--dataset-name custom", "--burstiness -1", "--header x", "--metadata =1",
     "--plot chart.svg", "--goodput ttft:x", "--percentile-metrics x",
     "--metric-percentiles 101", "--ramp-up-strategy linear", "--ramp-up-start-rps 1",
     "--ramp-up-strategy linear --ramp-up-start-rps 1 --ramp-up-end-rps 2 --request-rate 3"],
)  # fmt: skip
def test_wrong_words(words):
    with pytest.raises(ConfigError):
        parse(words.split())
