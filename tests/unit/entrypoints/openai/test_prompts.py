"""Prompts: bounds before tokenizing."""

import pytest

from octavo.entrypoints.openai import prompts
from octavo.entrypoints.openai.prompts import Prompt, PromptBuilder
from octavo.entrypoints.openai.workers import Workers
from octavo.types.errors import RequestError
from support.fake_async_llm import FakeAsyncLLM

LIMIT = 20  # tokens


@pytest.fixture
def tokenizer():
    return FakeAsyncLLM().tokenizer


@pytest.fixture
def builder(tokenizer):
    workers = Workers()
    yield PromptBuilder(tokenizer, LIMIT, workers)
    workers.shutdown()


async def test_short_and_long_lists_of_texts_are_the_same(builder, tokenizer):
    texts = [f"text {number}" for number in range(100)]
    expected = [Prompt(tokenizer.encode(text), text) for text in texts]
    assert await builder.from_texts(texts, add_special_tokens=True) == expected
    assert await builder.from_texts(texts[:3], add_special_tokens=True) == expected[:3]


async def test_a_text_that_can_not_fit_is_not_tokenized(builder, tokenizer, monkeypatch):
    # The longest token, a special one, has 5 characters.
    await builder.from_texts(["a" * (5 * LIMIT)], add_special_tokens=True)
    monkeypatch.setattr(tokenizer, "encode", lambda *args: pytest.fail("tokenized"))
    with pytest.raises(RequestError, match="101 characters") as caught:
        await builder.from_texts(
            ["a", "a" * (5 * LIMIT + 1)], add_special_tokens=True, param="messages"
        )
    assert caught.value.param == "messages"


async def test_a_text_that_is_much_too_long_is_read_until_that_is_sure(
    builder, tokenizer, monkeypatch
):
    monkeypatch.setattr(prompts, "_PIECE", 16)
    monkeypatch.setattr(builder, "_max_chars", 10_000)
    read = []
    encode = tokenizer.encode
    monkeypatch.setattr(
        tokenizer, "encode", lambda *args, **kw: read.append(args[0]) or encode(*args, **kw)
    )
    with pytest.raises(RequestError, match="the first 32 are more than 20 tokens"):
        await builder.from_texts(["a" * 5000], add_special_tokens=True)
    assert read == ["a" * 16, "a" * 16]


async def test_a_text_that_will_be_cut_may_be_longer(builder):
    text = "a" * (5 * LIMIT + 1)
    (prompt,) = await builder.from_texts([text], add_special_tokens=True, truncate=True)
    assert prompt.text == text
    with pytest.raises(RequestError):
        await builder.from_texts(["a" * 1000], add_special_tokens=True, truncate=True)


def test_ids_are_bounded_too(builder):
    assert builder.from_ids([[1], [2] * LIMIT]) == [Prompt([1], None), Prompt([2] * LIMIT, None)]
    with pytest.raises(RequestError, match="at most 20"):
        builder.from_ids([[1], [2] * (LIMIT + 1)])
    builder.from_ids([[2] * (LIMIT + 1)], truncate=True)


async def test_without_a_tokenizer():
    builder = PromptBuilder(None, LIMIT, Workers())
    with pytest.raises(RequestError, match="token ids"):
        await builder.from_texts(["a"], add_special_tokens=True)
    assert builder.from_ids([[1]]) == [Prompt([1], None)]
