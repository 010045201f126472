"""Shapes of log-probabilities."""

import math

import pytest

from octavo.entrypoints.openai.logprobs import LOWEST, LogprobsFormatter, prompt_logprobs
from octavo.types.outputs import Logprob
from support.fake_async_llm import FakeAsyncLLM

# The chosen token 70 is third; 71 and 72 are likelier.
POSITION = {
    70: Logprob(-3.0, 3, "a"),
    71: Logprob(-1.0, 1, "b"),
    72: Logprob(-2.0, 2, "c"),
}


@pytest.fixture
def tokenizer():
    return FakeAsyncLLM().tokenizer


def test_chat_has_the_likeliest_in_order(tokenizer):
    (entry,) = LogprobsFormatter(tokenizer, 2, False).chat([70], [POSITION]).content
    assert (entry.token, entry.logprob) == ("a", -3.0)
    assert [(top.token, top.logprob) for top in entry.top_logprobs] == [("b", -1.0), ("c", -2.0)]
    assert entry.bytes == list(tokenizer.token_bytes(70))


@pytest.mark.parametrize(
    ("top", "shown"), [(0, ["a"]), (1, ["a", "b"]), (2, ["a", "b", "c"]), (-1, ["a", "b", "c"])]
)
def test_completions_have_the_chosen_one_and_the_likeliest(tokenizer, top, shown):
    found, end = LogprobsFormatter(tokenizer, top, False).completion([70], [POSITION], 5)
    assert sorted(found.top_logprobs[0]) == shown
    assert found.tokens == ["a"]
    assert found.token_logprobs == [-3.0]
    assert (found.text_offset, end) == ([5], 6)


def test_offsets_count_characters(tokenizer):
    first = {70: Logprob(-1.0, 1, "")}
    second = {71: Logprob(-1.0, 1, "東京")}
    for as_token_ids in (False, True):
        formatter = LogprobsFormatter(tokenizer, 0, as_token_ids)
        found, end = formatter.completion([70, 71, 70], [first, second, first], 0)
        assert (found.text_offset, end) == ([0, 0, 2], 2)
    formatter = LogprobsFormatter(tokenizer, 0, True)
    assert formatter.completion([70, 71], [None, second], 0)[0].text_offset == [0, 1]


def test_the_first_token_of_a_prompt_has_none(tokenizer):
    found, _ = LogprobsFormatter(tokenizer, 1, False).completion([70, 70], [None, POSITION], 0)
    assert found.token_logprobs == [None, -3.0]
    assert found.top_logprobs[0] is None
    assert found.tokens[0] == tokenizer.decode([70])


@pytest.mark.parametrize("by_request", [True, False])
def test_tokens_as_ids(tokenizer, by_request):
    formatter = LogprobsFormatter(tokenizer if by_request else None, 2, by_request)
    assert formatter.completion([70], [POSITION], 0)[0].tokens == ["token_id:70"]
    assert formatter.chat([70], [POSITION]).content[0].token == "token_id:70"


def test_minus_infinity_becomes_a_number_that_json_can_hold(tokenizer):
    position = {70: Logprob(-math.inf, 1, "a")}
    assert prompt_logprobs([None, position])[1]["70"]["logprob"] == LOWEST
    formatter = LogprobsFormatter(tokenizer, 1, False)
    assert formatter.completion([70], [position], 0)[0].token_logprobs == [LOWEST]
    assert formatter.chat([70], [position]).content[0].top_logprobs[0].logprob == LOWEST


def test_prompt_logprobs_by_token_id():
    assert prompt_logprobs([None, POSITION])[1]["71"] == {
        "logprob": -1.0,
        "rank": 1,
        "decoded_token": "b",
    }
