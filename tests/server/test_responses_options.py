"""Options of turns, by OpenAI's official client over a socket, the engine faked."""

import math

import openai
import pytest

from support.fake_async_llm import SCRIPT, FakeAsyncLLM
from support.tiny import fake_config

LOGPROBS = ["message.output_text.logprobs"]
REASONING = ["reasoning.encrypted_content"]
THOUGHT = "<think>\nGröße?\n</think>\n\n"
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
CALLS = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>' * 3


def ask(client, words="hi", **fields):
    return client.responses.create(model="", input=words, **{"max_output_tokens": 8, **fields})


@pytest.fixture
def thinker(make_server):
    """A client of a server whose model calls tools as Hermes does, and reasons in tags."""
    server = make_server(tool_call_parser="hermes", reasoning_parser="deepseek_r1")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    client.engine = server.engine
    with client:
        yield client


def check_logprobs(text, logprobs, top):
    assert "".join(bytes(entry.bytes).decode("latin-1") for entry in logprobs) == text.encode(
        "utf-8"
    ).decode("latin-1")
    for entry in logprobs:
        assert entry.logprob == -1.0
        assert len(entry.top_logprobs) == top


def test_log_probabilities_of_the_text(client):
    reply = ask(client, include=LOGPROBS, top_logprobs=3)
    check_logprobs(SCRIPT[:8], reply.output[0].content[0].logprobs, 3)
    assert reply.top_logprobs == 3
    alone = ask(client, include=LOGPROBS)
    check_logprobs(SCRIPT[:8], alone.output[0].content[0].logprobs, 0)
    only_top = ask(client, top_logprobs=1)
    check_logprobs(SCRIPT[:8], only_top.output[0].content[0].logprobs, 1)
    assert ask(client).output[0].content[0].logprobs == []
    assert ask(client, top_logprobs=0, include=[]).output[0].content[0].logprobs == []


def test_log_probabilities_of_reasoning_and_calls_are_left_out(thinker):
    thinker.engine.script = f"{THOUGHT}n 東{CALLS}"
    options = {"tools": [TOOL], "include": LOGPROBS, "max_output_tokens": 230}
    whole = ask(thinker, **options)
    assert [item.type for item in whole.output] == ["reasoning", "message", *["function_call"] * 3]
    check_logprobs("n 東", whole.output[1].content[0].logprobs, 0)
    with thinker.responses.stream(model="", input="hi", **options) as stream:
        events = list(stream)
        final = stream.get_final_response()
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    check_logprobs("n 東", [entry for event in deltas for entry in event.logprobs], 0)
    (done,) = [event for event in events if event.type == "response.output_text.done"]
    check_logprobs("n 東", done.logprobs, 0)
    check_logprobs("n 東", final.output[1].content[0].logprobs, 0)


def test_stored_log_probabilities_are_those_that_were_sent(client):
    reply = ask(client, include=LOGPROBS, top_logprobs=2)
    assert client.responses.retrieve(reply.id) == reply
    assert all(
        math.isfinite(top.logprob)
        for entry in reply.output[0].content[0].logprobs
        for top in entry.top_logprobs
    )


def test_reasoning_goes_back_unread(thinker):
    thinker.engine.script = f"{THOUGHT}Yes."
    options = {"store": False, "max_output_tokens": 200}
    plain = ask(thinker, **options)
    assert plain.output[0].encrypted_content is None
    reply = ask(thinker, include=REASONING, **options)
    with thinker.responses.stream(model="", input="hi", include=REASONING, **options) as stream:
        streamed = stream.get_final_response()
    packed = reply.output[0].encrypted_content
    assert packed
    assert packed == streamed.output[0].encrypted_content
    assert "Größe" not in packed
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": packed}
    message = {"role": "assistant", "content": "Yes."}
    ask(thinker, [{"role": "user", "content": "a"}, item, message], **options)
    body = {"role": "user", "content": "b"}
    for foreign in ("gAAAA", ""):
        ask(thinker, [{**item, "encrypted_content": foreign}, body], **options)
        assert thinker.engine.seen[-1][0]["prompt"] == "user:b\nassistant:"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("most", [1, 2, 5])
def test_calls_beyond_the_most_are_dropped(thinker, most, stream):
    thinker.engine.script = CALLS
    options = {"tools": [TOOL], "max_tool_calls": most, "max_output_tokens": 230}
    if stream:
        with thinker.responses.stream(model="", input="hi", **options) as events:
            reply = events.get_final_response()
    else:
        reply = ask(thinker, **options)
    assert [item.type for item in reply.output] == ["function_call"] * min(most, 3)
    assert reply.max_tool_calls == most


@pytest.fixture
def short(make_server):
    """A client of a server whose model reads 80 tokens (characters)."""
    engine = FakeAsyncLLM(fake_config(max_model_len=80, max_num_batched_tokens=80))
    server = make_server(engine)
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    client.engine = engine
    with client:
        yield client


def turns(count):
    items = []
    for i in range(count):
        items.append({"role": "user", "content": f"q{i:02}"})
        items.append({"role": "assistant", "content": f"a{i:02}"})
    return [*items, {"role": "user", "content": "last"}]


def test_the_oldest_turns_go_where_all_would_not_fit(short):
    """A turn is "user:q00\\nassistant:a00\\n", 23 tokens; the end "user:last\\nassistant:", 20."""
    options = {"instructions": "be", "truncation": "auto"}  # "system:be\n": 10
    for room, kept in ((50, 0), (26, 1), (2, 2), (1, 2)):
        reply = ask(short, turns(9), max_output_tokens=room, **options)
        asked = "".join(f"user:q{i:02}\nassistant:a{i:02}\n" for i in range(9 - kept, 9))
        prompt = short.engine.seen[-1][0]["prompt"]
        assert prompt == f"system:be\n{asked}user:last\nassistant:"
        assert (reply.truncation, reply.usage.input_tokens) == ("auto", len(prompt))
    with pytest.raises(openai.BadRequestError):
        ask(short, turns(9), instructions="be")
    whole = ask(short, turns(1), truncation="auto", max_output_tokens=1)
    assert whole.usage.input_tokens == 43


def test_what_is_kept_for_later_is_not_truncated(short):
    first = ask(short, turns(9), truncation="auto", max_output_tokens=1)
    items = short.responses.input_items.list(first.id).data
    assert len(items) == 19
    ask(short, "z", previous_response_id=first.id, truncation="auto", max_output_tokens=1)
    prompt = short.engine.seen[-1][0]["prompt"]
    assert prompt.endswith(f"user:last\nassistant:{SCRIPT[0]}\nuser:z\nassistant:")


def test_a_last_turn_that_is_too_long_by_itself(short):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(short, [*turns(3), {"role": "user", "content": "x" * 100}], truncation="auto")
    assert caught.value.param == "input"
    with pytest.raises(openai.BadRequestError) as caught:
        ask(short, turns(3), truncation="auto", max_output_tokens=1000)
    assert caught.value.param == "max_output_tokens"
