"""The official client over a socket, the engine faked."""

import asyncio

import openai
import pytest

from support.fake_async_llm import SCRIPT

USER = [{"role": "user", "content": "hi"}]
MODEL = "any"


@pytest.fixture(autouse=True)
def model(client, monkeypatch):
    monkeypatch.setitem(globals(), "MODEL", client.models.list().data[0].id)


def test_models(client):
    (card,) = client.models.list().data
    assert client.models.retrieve(card.id).id == card.id
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_chat(client):
    reply = client.chat.completions.create(model=MODEL, messages=USER, max_tokens=8)
    assert reply.choices[0].message.content == SCRIPT[:8]
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage.completion_tokens == 8


def test_chat_stream(client):
    stream = client.chat.completions.create(
        model=MODEL,
        messages=USER,
        max_tokens=60,
        n=2,
        stream=True,
        stream_options={"include_usage": True},
    )
    texts = ["", ""]
    usages = []
    for chunk in stream:
        usages += [chunk.usage] if chunk.usage else []
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    whole = client.chat.completions.create(model=MODEL, messages=USER, max_tokens=60, n=2)
    assert texts == [choice.message.content for choice in whole.choices]
    assert usages == [whole.usage]


def test_chat_stream_helper(client):
    script = {"vllm_xargs": {"text": "All of it."}}
    with client.chat.completions.stream(model=MODEL, messages=USER, extra_body=script) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.content == "All of it."


def test_chat_logprobs(client):
    reply = client.chat.completions.create(
        model=MODEL, messages=USER, max_tokens=3, logprobs=True, top_logprobs=2
    )
    content = reply.choices[0].logprobs.content
    assert [entry.token for entry in content] == list("The")
    assert [len(entry.top_logprobs) for entry in content] == [2, 2, 2]


def test_completions(client):
    reply = client.completions.create(
        model=MODEL, prompt=["ab", "cd"], max_tokens=3, echo=True, logprobs=1
    )
    assert [choice.text for choice in reply.choices] == ["abThe", "cdThe"]
    assert reply.choices[0].logprobs.tokens == list("abThe")
    stream = client.completions.create(model=MODEL, prompt=[70, 71], max_tokens=5, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == SCRIPT[:5]


def test_fields_beyond_the_official_ones(client):
    reply = client.completions.create(
        model=MODEL, prompt="a", max_tokens=2, extra_body={"top_k": 5, "return_token_ids": True}
    )
    assert len(reply.choices[0].token_ids) == 2


def test_errors(client):
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.chat.completions.create(model="other", messages=USER)
    with pytest.raises(openai.BadRequestError, match="temperature") as caught:
        client.chat.completions.create(model=MODEL, messages=USER, temperature=9)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.InternalServerError, match="NaN logits"):
        client.completions.create(
            model=MODEL, prompt="a", extra_body={"vllm_xargs": {"error_at": 0}}
        )


def test_an_error_midway_reaches_the_reader_of_a_stream(client):
    stream = client.chat.completions.create(
        model=MODEL, messages=USER, stream=True, extra_body={"vllm_xargs": {"error_at": 3}}
    )
    chunks = []
    with pytest.raises(openai.APIError, match="NaN logits"):
        chunks.extend(stream)
    assert "".join(chunk.choices[0].delta.content for chunk in chunks) == SCRIPT[:3]


async def test_many_at_once(server):
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:

        async def one(number):
            stream = await client.completions.create(
                model=MODEL, prompt=f"p{number}", max_tokens=number + 1, stream=True
            )
            return "".join([chunk.choices[0].text async for chunk in stream])

        texts = await asyncio.gather(*map(one, range(40)))
    assert texts == [SCRIPT[: number + 1] for number in range(40)]


def test_keys(make_server):
    server = make_server(api_key=("secret",))
    for key, works in (("secret", True), ("wrong", False)):
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0) as client:
            if works:
                client.models.list()
            else:
                with pytest.raises(openai.AuthenticationError):
                    client.models.list()
