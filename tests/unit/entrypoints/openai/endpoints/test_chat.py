"""/v1/chat/completions over a fake engine."""

import asyncio
import json

import pytest

from support.fake_async_llm import SCRIPT

USER = {"role": "user", "content": "hi"}


def prompt_of(client):
    return client.engine.seen[-1][0]["prompt"]


async def test_a_plain_answer(client):
    body = (await client.chat(max_tokens=5)).json()
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": SCRIPT[:5], "refusal": None},
            "logprobs": None,
            "finish_reason": "length",
            "stop_reason": None,
        }
    ]
    assert prompt_of(client) == "user:hi\nassistant:"
    assert body["usage"]["prompt_tokens"] == len("user:hi\nassistant:")


async def test_without_a_limit_the_answer_may_fill_the_model_length(client):
    body = (await client.chat()).json()
    assert body["usage"]["total_tokens"] == client.engine.config.model.max_model_len


async def test_the_newer_name_of_max_tokens_wins(client):
    body = (await client.chat(max_tokens=9, max_completion_tokens=2)).json()
    assert body["usage"]["completion_tokens"] == 2


async def test_a_stream_equals_the_whole_answer(client):
    for n in (1, 3):
        whole = (await client.chat(max_tokens=60, n=n)).json()
        events = await client.events(await client.chat(max_tokens=60, n=n, stream=True))
        texts = [""] * n
        finishes = [None] * n
        for event in events:
            for choice in event["choices"]:
                assert finishes[choice["index"]] is None
                texts[choice["index"]] += choice["delta"]["content"]
                finishes[choice["index"]] = choice["finish_reason"]
        assert texts == [choice["message"]["content"] for choice in whole["choices"]]
        assert finishes == ["length"] * n


async def test_the_role_comes_first_and_once(client):
    events = await client.events(await client.chat(max_tokens=3, n=2, stream=True))
    roles = [
        (choice["index"], choice["delta"]["role"])
        for event in events
        for choice in event["choices"]
        if "role" in choice["delta"]
    ]
    assert roles == [(0, "assistant"), (1, "assistant")]
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[0]["object"] == "chat.completion.chunk"


async def test_usage_of_a_stream_comes_once_and_last(client):
    reply = await client.chat(max_tokens=5, stream=True, stream_options={"include_usage": True})
    *events, last = await client.events(reply)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 5
    assert all(event["usage"] is None for event in events)


@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs(client, stream):
    reply = await client.chat(max_tokens=3, logprobs=True, top_logprobs=2, stream=stream)
    bodies = await client.events(reply) if stream else [reply.json()]
    found = [choice["logprobs"] for body in bodies for choice in body["choices"]]
    content = [entry for logprobs in found if logprobs for entry in logprobs["content"]]
    assert [entry["token"] for entry in content] == list("The")
    assert content[0] == {
        "token": "T",
        "logprob": -1.0,
        "bytes": [84],
        "top_logprobs": [
            {"token": "U", "logprob": -0.5, "bytes": [85]},
            {"token": "T", "logprob": -1.0, "bytes": [84]},
        ],
    }


async def test_logprobs_of_parts_of_a_character_have_its_bytes(client):
    reply = await client.chat(logprobs=True, vllm_xargs={"text": "é"})
    content = reply.json()["choices"][0]["logprobs"]["content"]
    assert b"".join(bytes(entry["bytes"]) for entry in content).decode() == "é"
    assert "".join(entry["token"] for entry in content) == "é"
    assert [entry["top_logprobs"] for entry in content] == [[], []]


async def test_token_ids(client):
    encode = client.engine.tokenizer.encode
    body = (await client.chat(max_tokens=2, return_token_ids=True)).json()
    assert body["prompt_token_ids"] == encode("user:hi\nassistant:", False)
    assert body["choices"][0]["token_ids"] == encode("Th", False)
    reply = await client.chat(max_tokens=2, return_token_ids=True, stream=True)
    first, *rest = await client.events(reply)
    assert first["prompt_token_ids"] == body["prompt_token_ids"]
    tokens = [token for event in rest for token in event["choices"][0]["token_ids"]]
    assert tokens == encode("Th", False)


async def test_prompt_logprobs(client):
    body = (await client.chat(max_tokens=1, prompt_logprobs=0)).json()
    assert body["prompt_logprobs"][0] is None
    assert len(body["prompt_logprobs"]) == body["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -2}, "top_logprobs"),
        ({"logprobs": 5}, "logprobs"),
        ({"max_tokens": 10_000}, "max_tokens"),
        ({"max_completion_tokens": 10_000}, "max_completion_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"vllm_xargs": {"a": 1 << 70}}, "vllm_xargs"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"chat_template": "x"}, "chat_template"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs"),
        ({"n": 1 << 40}, "n"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
        ({"messages": {"role": "user"}}, "messages"),
        ({"messages": [5]}, "messages[0]"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "user", "content": "a" * 400}]}, "messages"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_bad_values_are_refused_with_their_field(client, fields, param, stream):
    body = {"messages": [USER], "stream": stream, **fields}
    reply = await client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param


async def test_errors_speak_of_the_fields_that_were_sent(client):
    reply = await client.chat(max_completion_tokens=3, min_tokens=5)
    message = reply.json()["error"]["message"]
    assert "max_completion_tokens=3" in message
    assert "max_tokens" not in message.replace("max_completion_tokens", "")


async def test_tools_that_are_only_shown(client):
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert (await client.chat(tools=tools, tool_choice="none", max_tokens=1)).status_code == 200
    assert (await client.chat(tools=[], tool_choice="auto", max_tokens=1)).status_code == 200


async def test_a_list_of_parts_equals_its_joined_text(client):
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    await client.chat([{"role": "system", "content": parts}, USER], max_tokens=1)
    in_parts = prompt_of(client)
    await client.chat([{"role": "system", "content": "a\nb"}, USER], max_tokens=1)
    assert in_parts == prompt_of(client) == "system:a\nb\nuser:hi\nassistant:"


async def test_what_the_template_says_is_the_answer_to_what_it_refuses(make_client):
    template = (
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
        "{{ raise_exception('the system message comes first') }}{% endif %}"
        "{{ m.content }}{% endfor %}"
    )
    client = await make_client(chat_template=template)
    reply = await client.chat([USER, {"role": "system", "content": "b"}])
    assert reply.status_code == 400
    assert "the system message comes first" in reply.json()["error"]["message"]


async def test_a_template_of_the_request_where_the_server_trusts_it(make_client):
    client = await make_client(server={"trust_request_chat_template": True})
    await client.chat(chat_template="<{{ messages[0].content }}{{ x }}>", max_tokens=1,
                      chat_template_kwargs={"x": "!"})  # fmt: skip
    assert prompt_of(client) == "<hi!>"
    reply = await client.chat(chat_template="{% for %}")
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "chat_template"


async def test_a_template_that_writes_the_begin_token_gets_no_second_one(make_client):
    client = await make_client(chat_template="<s>{{ messages[0].content }}")
    body = (await client.chat(max_tokens=1, return_token_ids=True)).json()
    assert body["prompt_token_ids"] == client.engine.tokenizer.encode("<s>hi", False)


async def test_going_on_with_the_last_message(client):
    messages = [USER, {"role": "assistant", "content": "Well, "}]
    fields = {"continue_final_message": True, "add_generation_prompt": False, "max_tokens": 3}
    plain = (await client.chat(messages, **fields)).json()["choices"][0]["message"]["content"]
    assert prompt_of(client) == "user:hi\nassistant:Well, "
    echoed = (await client.chat(messages, **fields, echo=True)).json()
    assert echoed["choices"][0]["message"]["content"] == "Well, " + plain
    events = await client.events(await client.chat(messages, **fields, echo=True, stream=True))
    text = "".join(event["choices"][0]["delta"]["content"] for event in events)
    assert text == "Well, " + plain


async def test_the_role_of_answers(make_client):
    client = await make_client(server={"response_role": "bot"})
    assert (await client.chat(max_tokens=1)).json()["choices"][0]["message"]["role"] == "bot"


async def test_a_stream_that_fails_midway_says_so_and_ends(client):
    reply = await client.chat(vllm_xargs={"error_at": 2}, stream=True, n=2, max_tokens=9)
    events = await client.events(reply)
    finishes = [c["finish_reason"] for e in events for c in e.get("choices", [])]
    assert finishes.count("error") == 2
    assert any("NaN logits" in event["error"]["message"] for event in events if "error" in event)


async def test_ids_of_the_client(client):
    reply = await client.chat(max_tokens=1, request_id="mine")
    assert reply.json()["id"] == "chatcmpl-mine"
    reply = await client.post(
        "/v1/chat/completions",
        json={"messages": [USER], "max_tokens": 1},
        headers={"x-request-id": "from-header"},
    )
    assert reply.json()["id"] == "chatcmpl-from-header"


async def test_two_requests_with_one_id_do_not_disturb_each_other(client):
    fields = {"request_id": "same", "vllm_xargs": {"sleep": 0.001}}
    first, second = await asyncio.gather(
        *(client.chat(max_tokens=max_tokens, **fields) for max_tokens in (5, 7))
    )
    assert first.json()["usage"]["completion_tokens"] == 5
    assert second.json()["usage"]["completion_tokens"] == 7


async def test_every_answer_is_strict_json(client):
    reply = await client.chat(max_tokens=4, logprobs=True, top_logprobs=20)
    json.loads(reply.text, parse_constant=lambda name: pytest.fail(name))
