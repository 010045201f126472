"""Anthropic's official client over a socket, the engine faked."""

import anthropic
import pytest

from support.fake_async_llm import SCRIPT

USER = [{"role": "user", "content": "hi"}]
MODEL = "any"


@pytest.fixture
def claude(server):
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(autouse=True)
def model(client, monkeypatch):
    monkeypatch.setitem(globals(), "MODEL", client.models.list().data[0].id)


def test_a_message(claude):
    reply = claude.messages.create(model=MODEL, messages=USER, max_tokens=8)
    assert [block.text for block in reply.content] == [SCRIPT[:8]]
    assert (reply.role, reply.type, reply.stop_reason) == ("assistant", "message", "max_tokens")
    assert reply.usage.output_tokens == 8
    assert reply.id.startswith("msg_")


def test_a_stream_says_the_same(claude):
    whole = claude.messages.create(model=MODEL, messages=USER, max_tokens=60)
    with claude.messages.stream(model=MODEL, messages=USER, max_tokens=60) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text
    assert final.content[0].text == text
    assert (final.stop_reason, final.usage) == (whole.stop_reason, whole.usage)


def test_events_come_in_their_order(claude):
    events = list(claude.messages.create(model=MODEL, messages=USER, max_tokens=3, stream=True))
    kinds = [event.type for event in events if event.type != "ping"]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}


def test_a_stop_sequence_is_named(claude):
    stop = SCRIPT[4:9]
    for stream in (False, True):
        options = {"model": MODEL, "messages": USER, "max_tokens": 50, "stop_sequences": [stop]}
        if stream:
            with claude.messages.stream(**options) as events:
                reply = events.get_final_message()
        else:
            reply = claude.messages.create(**options)
        assert (reply.stop_reason, reply.stop_sequence) == ("stop_sequence", stop)
        assert reply.content[0].text == SCRIPT[:4]


def test_system_prompts_and_blocks_reach_the_template(claude, server):
    claude.messages.create(
        model=MODEL,
        max_tokens=2,
        system=[{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "one"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "two"}]},
            {"role": "user", "content": "three"},
        ],
    )
    prompt = server.engine.seen[-1][0]["prompt"]
    assert prompt == "system:be brief\nuser:one\nassistant:two\nuser:three\nassistant:"


def test_an_answer_that_was_begun_goes_on(claude, server):
    messages = [*USER, {"role": "assistant", "content": "The answer is"}]
    claude.messages.create(model=MODEL, max_tokens=2, messages=messages)
    assert server.engine.seen[-1][0]["prompt"] == "user:hi\nassistant:The answer is"


def test_tokens_are_counted_as_they_are_billed(claude):
    counted = claude.messages.count_tokens(model=MODEL, messages=USER, system="s")
    reply = claude.messages.create(model=MODEL, messages=USER, system="s", max_tokens=1)
    usage = reply.usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_errors_have_the_clients_classes(claude):
    with pytest.raises(anthropic.NotFoundError, match="does not exist"):
        claude.messages.create(model="other", messages=USER, max_tokens=1)
    with pytest.raises(anthropic.BadRequestError, match="temperature") as caught:
        claude.messages.create(
            model=MODEL, messages=USER, max_tokens=1, extra_body={"temperature": 9}
        )
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    image = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/x"}}
    with pytest.raises(anthropic.BadRequestError, match="image"):
        claude.messages.create(
            model=MODEL, max_tokens=1, messages=[{"role": "user", "content": [image]}]
        )


def test_keys(make_server):
    server = make_server(api_key=("secret",))
    for key, works in (("secret", True), ("wrong", False)):
        with anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0) as client:
            if works:
                client.messages.create(model="", messages=USER, max_tokens=1)
            else:
                with pytest.raises(anthropic.AuthenticationError):
                    client.messages.create(model="", messages=USER, max_tokens=1)


TOOL = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "東京"}}\n</tool_call>'


@pytest.fixture
def caller(make_server):
    """A client of a server whose model calls tools as Hermes does, and reasons in tags."""
    server = make_server(tool_call_parser="hermes", reasoning_parser="deepseek_r1")
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    client.engine = server.engine
    with client:
        yield client


def ask_for_tool(client, answer, **fields):
    options = {"model": "", "messages": USER, "max_tokens": 200, "tools": [TOOL], **fields}
    # The fake engine's script comes through the chat endpoint's own field.
    client.engine.script = answer
    return options


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called(caller, stream):
    options = ask_for_tool(caller, f"<think>Look it up.</think>I will look.{CALL}")
    if stream:
        with caller.messages.stream(**options) as events:
            reply = events.get_final_message()
    else:
        reply = caller.messages.create(**options)
    thinking, text, call = reply.content
    assert (thinking.type, thinking.thinking) == ("thinking", "Look it up.")
    assert (text.type, text.text) == ("text", "I will look.")
    assert (call.type, call.name, call.input) == ("tool_use", "get_weather", {"city": "東京"})
    assert reply.stop_reason == "tool_use"


def test_the_result_of_a_tool_goes_back(caller):
    options = ask_for_tool(caller, "It is sunny.")
    call = {"type": "tool_use", "id": "c", "name": "get_weather", "input": {"city": "Rome"}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "sunny"}
    options["messages"] = [
        *USER,
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result, {"type": "text", "text": "so?"}]},
    ]
    reply = caller.messages.create(**options)
    assert reply.content[0].text == "It is sunny."
    prompt = caller.engine.seen[-1][0]["prompt"]
    assert prompt.endswith("tool:sunny\nuser:so?\nassistant:")
