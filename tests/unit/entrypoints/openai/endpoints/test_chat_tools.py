"""Tools and reasoning in /v1/chat/completions, over a fake engine that says what it is told to."""

import functools
import json
import re

import openai
import pytest
from openai.lib.streaming._deltas import accumulate_delta

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
OTHER = {"type": "function", "function": {"name": "g"}}
CALL_F = '<tool_call>\n{"name": "f", "arguments": {"x": "é\\"", "y": 1.70}}\n</tool_call>'
CALL_G = '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'
ANSWER = f"<think>\nhm\n</think>\n\nOk.\n{CALL_F}\n{CALL_G}"
SERVER = {"tool_call_parser": "hermes", "reasoning_parser": "qwen3"}


@pytest.fixture
async def client(make_client):
    return await make_client(server=SERVER)


def fields(text, **more):
    return {"tools": [TOOL, OTHER], "vllm_xargs": {"text": text}, **more}


async def whole(client, text, **more):
    reply = await client.chat(**fields(text, **more))
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"]


async def streamed(client, text, **more):
    """(message, finish reason, deltas) of each choice, joined as OpenAI's client joins them."""
    events = await client.events(await client.chat(**fields(text, stream=True, **more)))
    deltas, finishes = {}, {}
    for event in events:
        for choice in event["choices"]:
            deltas.setdefault(choice["index"], []).append(choice["delta"])
            assert finishes.get(choice["index"]) is None
            finishes[choice["index"]] = choice["finish_reason"]
    return [
        (functools.reduce(accumulate_delta, map(dict, parts), {}), finishes[index], parts)
        for index, parts in sorted(deltas.items())
    ]


async def refusal(client, **body):
    reply = await client.chat(**body)
    assert reply.status_code == 400, reply.text
    return reply.json()["error"]


async def test_a_whole_answer(client):
    (choice,) = await whole(client, ANSWER)
    message = choice["message"]
    assert message["reasoning"] == message["reasoning_content"] == "hm"
    assert message["content"] == "Ok."
    assert choice["finish_reason"] == "tool_calls"
    first, second = message["tool_calls"]
    assert first["type"] == "function"
    assert first["function"] == {"name": "f", "arguments": '{"x": "é\\"", "y": 1.70}'}
    assert second["function"] == {"name": "g", "arguments": "{}"}
    assert re.fullmatch(r"call_[A-Za-z0-9]{24}", first["id"])
    assert first["id"] != second["id"]


async def test_an_answer_of_calls_only_has_no_content(client):
    (choice,) = await whole(client, CALL_G)
    assert choice["message"]["content"] is None
    assert "reasoning" not in choice["message"]


async def test_an_answer_without_calls_is_as_it_was_written(client):
    (choice,) = await whole(client, "  plain <tool_cal\n")
    assert choice["message"] == {
        "role": "assistant",
        "content": "  plain <tool_cal\n",
        "refusal": None,
    }
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("text", [ANSWER, CALL_F, "plain\n", "<think>a", f"a{CALL_G}b", "{"])
async def test_a_stream_says_the_same(client, text):
    (choice,) = await whole(client, text)
    ((message, finish, _),) = await streamed(client, text)
    expected = choice["message"]
    assert (message.get("content") or None) == (expected["content"] or None)
    assert message.get("reasoning") == expected.get("reasoning")
    assert message.get("reasoning_content") == expected.get("reasoning")
    calls = [call["function"] for call in expected.get("tool_calls", [])]
    assert [call["function"] for call in message.get("tool_calls", [])] == calls
    assert finish == choice["finish_reason"]


async def test_a_call_begins_with_its_name_and_goes_on_with_arguments(client):
    ((_, _, deltas),) = await streamed(client, ANSWER)
    entries = [entry for delta in deltas for entry in delta.get("tool_calls", [])]
    for index, name in enumerate("fg"):
        first, *rest = [entry for entry in entries if entry["index"] == index]
        assert set(first) == {"index", "id", "type", "function"}
        assert first["function"]["name"] == name
        assert all(set(entry) == {"index", "function"} for entry in rest)
        assert all(set(entry["function"]) == {"arguments"} for entry in rest)
        assert all(entry["function"]["arguments"] for entry in rest)
    assert [entry["index"] for entry in entries] == sorted(entry["index"] for entry in entries)
    assert len(entries) > 10
    assert deltas[0] == {"role": "assistant", "content": ""}


async def test_every_choice_has_a_parser_of_its_own(client):
    choices = await whole(client, ANSWER, n=3)
    ids = [call["id"] for choice in choices for call in choice["message"]["tool_calls"]]
    assert len(set(ids)) == 6
    for message, finish, _ in await streamed(client, ANSWER, n=3):
        assert len(message["tool_calls"]) == 2
        assert finish == "tool_calls"


async def test_log_probabilities_cover_every_token(client):
    (choice,) = await whole(client, ANSWER, logprobs=True, top_logprobs=1, return_token_ids=True)
    tokens = [entry["token"] for entry in choice["logprobs"]["content"]]
    assert len(tokens) == len(choice["token_ids"]) == len(ANSWER.encode())
    events = await client.events(
        await client.chat(**fields(ANSWER, logprobs=True, return_token_ids=True, stream=True))
    )
    parts = [choice for event in events[1:] for choice in event["choices"]]
    shown = [entry["token"] for part in parts for entry in part["logprobs"]["content"]]
    assert shown == tokens
    streamed_ids = [token_id for part in parts for token_id in part["token_ids"]]
    assert streamed_ids == choice["token_ids"]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
@pytest.mark.parametrize("parser", ["hermes", "pythonic"])
async def test_calls_that_were_required_and_did_not_come_are_no_error(make_client, parser, choice):
    """The engine is faked: nothing holds the answer to the grammar."""
    client = await make_client(server={"tool_call_parser": parser})
    for text in ("no call here", "[1, {", '[{"name": 3}]', ""):
        (answer,) = await whole(client, text, tool_choice=choice)
        assert answer["finish_reason"] == "stop"
        assert not answer["message"].get("tool_calls")
        assert answer["message"]["content"] == text
        ((message, finish, _),) = await streamed(client, text, tool_choice=choice)
        assert (message.get("content") or "", finish) == (text, "stop")
        assert "tool_calls" not in message


async def test_one_call_at_most_if_that_is_wanted(client):
    (choice,) = await whole(client, ANSWER, parallel_tool_calls=False)
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["f"]
    ((message, finish, _),) = await streamed(client, ANSWER, parallel_tool_calls=False)
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["f"]
    assert finish == "tool_calls"


async def test_reasoning_can_be_left_out(client):
    (choice,) = await whole(client, ANSWER, include_reasoning=False)
    assert "reasoning" not in choice["message"]
    assert choice["message"]["content"] == "Ok."
    ((message, _, _),) = await streamed(client, ANSWER, include_reasoning=False)
    assert "reasoning" not in message
    assert message["content"] == "Ok."


async def test_an_answer_that_is_cut_off(client):
    (choice,) = await whole(client, ANSWER, max_tokens=15)
    assert choice["message"]["reasoning"] == "hm\n</th"
    assert choice["message"]["content"] is None
    assert choice["finish_reason"] == "length"
    (choice,) = await whole(client, CALL_F, max_tokens=55)
    (call,) = choice["message"]["tool_calls"]
    assert '{"x": "é\\"", "y": 1.70}'.startswith(call["function"]["arguments"])
    assert choice["finish_reason"] == "length"


async def test_without_calls_allowed_their_syntax_is_text(client):
    for more in ({"tool_choice": "none"}, {"tools": None}, {"tools": []}):
        (choice,) = await whole(client, CALL_G, **more)
        assert choice["message"]["content"] == CALL_G
        assert choice["finish_reason"] == "stop"


async def test_stop_strings_end_what_the_user_reads(client):
    text = "<think>use X now</think>Done"
    (choice,) = await whole(client, text, stop=["X"])
    assert choice["message"]["reasoning"] == "use X now"
    assert choice["message"]["content"] == "Done"
    (choice,) = await whole(client, text + " X no", stop=["X"])
    assert choice["message"]["content"] == "Done "
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "X")
    for stop in ("é", "arg", "</t"):
        (choice,) = await whole(client, CALL_F, stop=stop)
        assert len(choice["message"]["tool_calls"]) == 1, stop
    ((message, _, _),) = await streamed(client, text + " X no", stop=["X"])
    assert message["content"] == "Done "


@pytest.mark.parametrize(
    ("body", "param", "reason"),
    [
        (
            {"tool_choice": "required", "response_format": {"type": "json_object"}},
            "tool_choice",
            "leave one out",
        ),
        ({"tool_choice": {"type": "function", "function": {"name": "h"}}}, "tool_choice", "lacks"),
        ({"tool_choice": "sometimes"}, "tool_choice", "none of"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]", "other kinds"),
        ({"tools": None, "tool_choice": "required"}, "tool_choice", "offers none"),
        ({"reasoning_effort": "high"}, "reasoning_effort", "knows no such thing"),
    ],
)
async def test_what_can_t_be_kept_is_refused(client, body, param, reason):
    for stream in (False, True):
        error = await refusal(client, **{"tools": [TOOL], "stream": stream, **body})
        assert error["param"] == param
        assert reason in error["message"]
    assert client.engine.seen == []


async def test_a_server_without_a_parser_says_so(make_client):
    client = await make_client()
    assert (await refusal(client, tools=[TOOL]))["param"] == "tools"
    off = await make_client(server=SERVER | {"enable_auto_tool_choice": False})
    assert "--tool-call-parser" in (await refusal(off, tools=[TOOL]))["message"]
    reply = await client.chat(tools=[TOOL], tool_choice="none", max_tokens=2)
    assert reply.status_code == 200


async def test_a_conversation_goes_on_after_calls_of_any_kind(client):
    broken = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"v": '}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [broken]},
        {"role": "tool", "tool_call_id": "c", "content": "invalid"},
        {"role": "user", "content": "continue"},
    ]
    reply = await client.chat(messages, **fields("fine"))
    assert reply.status_code == 200
    assert reply.json()["choices"][0]["message"]["content"] == "fine"


async def test_the_prompt_tells_that_an_answer_begins_within_reasoning(make_client):
    template = "{{ messages[0].content }}:<think>\n"
    client = await make_client(server=SERVER, chat_template=template)
    (choice,) = await whole(client, f"hm</think>{CALL_G}")
    assert choice["message"]["reasoning"] == "hm"
    assert len(choice["message"]["tool_calls"]) == 1


async def test_a_template_that_knows_effort_is_told(make_client):
    template = "{{ messages[0].content }}{{ reasoning_effort }}{{ tools | tojson }}"
    client = await make_client(server=SERVER, chat_template=template)
    await whole(client, "a", reasoning_effort="low")
    prompt = client.engine.seen[-1][0]["prompt"]
    assert prompt == "hilow" + json.dumps([TOOL, OTHER])


async def test_special_tokens_are_hidden_though_the_parser_sees_them(make_client):
    client = await make_client(server={"tool_call_parser": "mistral"})
    (choice,) = await whole(client, "a<s>b</s>")
    assert choice["message"]["content"] == "ab"
    (choice,) = await whole(client, "a<s>b", skip_special_tokens=False)
    assert choice["message"]["content"] == "a<s>b"


async def test_the_official_client_joins_a_stream(client):
    official = openai.AsyncOpenAI(
        base_url="http://server/v1", api_key="none", http_client=client, max_retries=0
    )
    names, arguments = [], {}
    async with official.chat.completions.stream(
        model=client.engine.config.model.served_model_name[0],
        messages=[{"role": "user", "content": "hi"}],
        tools=[TOOL, OTHER],
        extra_body={"vllm_xargs": {"text": ANSWER}},
    ) as stream:
        async for event in stream:
            if event.type == "tool_calls.function.arguments.done":
                names.append(event.name)
                arguments[event.index] = event.arguments
        final = await stream.get_final_completion()
    choice = final.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Ok."
    assert names == ["f", "g"]
    calls = choice.message.tool_calls
    assert [call.function.arguments for call in calls] == [arguments[0], arguments[1]]
    assert json.loads(arguments[0]) == {"x": 'é"', "y": 1.7}


async def test_an_agent_goes_round(client):
    official = openai.AsyncOpenAI(base_url="http://server/v1", api_key="none", http_client=client)
    model = client.engine.config.model.served_model_name[0]
    messages = [{"role": "user", "content": "hi"}]
    reasons = []
    for text in (ANSWER, "<think>so</think>\n\nAll done."):
        completion = await official.chat.completions.create(
            model=model, messages=messages, tools=[TOOL], extra_body={"vllm_xargs": {"text": text}}
        )
        (choice,) = completion.choices
        reasons.append(choice.finish_reason)
        messages.append(choice.message.model_dump(exclude_none=True))
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": "42"}
            for call in choice.message.tool_calls or []
        ]
    assert reasons == ["tool_calls", "stop"]
    assert choice.message.content == "All done."
