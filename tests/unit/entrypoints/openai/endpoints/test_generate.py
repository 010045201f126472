"""/inference/v1/generate and the render endpoints over a fake engine: tokens in, tokens out."""

import base64

import numpy as np
import pytest

from octavo.types.outputs import HiddenStates
from octavo.types.sampling_extras import HiddenStatesParams
from support.fake_async_llm import SCRIPT

GENERATE = "/inference/v1/generate"


async def generate(client, token_ids=(5, 6), **fields):
    return await client.post(GENERATE, json={"token_ids": list(token_ids), **fields})


def text_of(client, token_ids):
    return client.engine.tokenizer.decode(token_ids)


async def test_tokens_come_out(client):
    reply = await generate(client, sampling_params={"max_tokens": 6, "n": 2}, request_id="mine")
    body = reply.json()
    assert body["request_id"] == "mine"
    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    assert text_of(client, body["choices"][0]["token_ids"]) == SCRIPT[:6]
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 12
    prompt, params, _ = client.engine.seen[-1]
    assert prompt == {"prompt_token_ids": [5, 6]}
    assert not params.detokenize


async def test_a_stream_gives_the_same_tokens(client):
    options = {"sampling_params": {"max_tokens": 9, "logprobs": 1}}
    whole = (await generate(client, **options)).json()["choices"][0]
    reply = await generate(client, **options, stream=True, stream_options={"include_usage": True})
    *events, usage = await client.events(reply)
    choices = [event["choices"][0] for event in events]
    for field in ("token_ids", "logprobs"):
        assert [item for choice in choices for item in choice[field]] == whole[field]
    assert choices[-1]["finish_reason"] == "length"
    assert usage["usage"]["completion_tokens"] == 9
    assert usage["choices"] == []


async def test_hidden_states_are_base64_of_float32(client, monkeypatch):
    states = np.arange(12, dtype=np.float32).reshape(2, 2, 3) / 7
    plain = client.engine.generate

    async def with_states(*args, **options):
        async for output in plain(*args, **options):
            output.outputs[0].hidden_states = HiddenStates([0, -1], 1, states)
            yield output

    monkeypatch.setattr(client.engine, "generate", with_states)
    wanted = {"layers": [0, -1], "positions": "output"}
    reply = await generate(client, sampling_params={"max_tokens": 3, "hidden_states": wanted})
    found = reply.json()["choices"][0]["hidden_states"]
    assert (found["layers"], found["first_position"]) == ([0, -1], 1)
    data = np.frombuffer(base64.b64decode(found["data"]), "<f4").reshape(found["shape"])
    assert np.array_equal(data, states)
    _, params, _ = client.engine.seen[-1]
    assert params.hidden_states == HiddenStatesParams(layers=[0, -1], positions="output")


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"temprature": 1}, "did you mean temperature"),
        ({"temperature": 9}, "temperature"),
        ({"max_tokens": "x"}, "max_tokens"),
        ({"output_kind": 1}, "output_kind"),
        ({"eos_token_ids": [1]}, "eos_token_ids"),
        ({"logprobs": 10_000}, "logprobs"),
        ({"stop": ["a"], "detokenize": False}, "stop"),
    ],
)
async def test_wrong_parameters_are_named(client, params, words):
    reply = await generate(client, sampling_params=params)
    assert reply.status_code == 400
    assert words in reply.json()["error"]["message"]


async def test_wrong_tokens_are_refused(client):
    for token_ids in ([], [-1], [320], ["a"], list(range(3, 200)) * 3):
        reply = await generate(client, token_ids)
        assert reply.status_code == 400, token_ids


async def test_a_failure_in_a_stream_is_told(client):
    params = {"extra_args": {"error_at": 2}}
    events = await client.events(await generate(client, sampling_params=params, stream=True))
    assert any("NaN logits" in event.get("error", {}).get("message", "") for event in events)


async def test_a_rendered_chat_can_be_generated(client):
    messages = [{"role": "user", "content": "hi"}]
    body = {"messages": messages, "temperature": 0.5, "max_completion_tokens": 7}
    rendered = (await client.post("/v1/chat/completions/render", json=body)).json()
    assert client.engine.seen == []
    assert text_of(client, rendered["token_ids"]) == "user:hi\nassistant:"
    assert rendered["sampling_params"]["temperature"] == 0.5
    reply = await client.post(GENERATE, json=rendered)
    assert reply.status_code == 200, reply.text
    assert len(reply.json()["choices"][0]["token_ids"]) == 7


async def test_rendered_completions(client):
    body = {"prompt": ["ab", "c"], "max_tokens": 3, "stop": ["x"]}
    rendered = (await client.post("/v1/completions/render", json=body)).json()
    assert [text_of(client, each["token_ids"]) for each in rendered] == ["ab", "c"]
    for each in rendered:
        assert (await client.post(GENERATE, json=each)).status_code == 200
