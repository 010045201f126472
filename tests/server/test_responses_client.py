"""OpenAI's official client for /v1/responses over a socket, the engine faked."""

import json

import openai
import pytest

from support.fake_async_llm import SCRIPT
from support.http_server import wait_until

MODEL = "any"


@pytest.fixture(autouse=True)
def model(client, monkeypatch):
    monkeypatch.setitem(globals(), "MODEL", client.models.list().data[0].id)


def ask(client, words="hi", **fields):
    fields = {"max_output_tokens": 8, **fields}
    return client.responses.create(model=MODEL, input=words, **fields)


def test_a_response(client):
    reply = ask(client, instructions="be brief", metadata={"a": "b"})
    assert reply.output_text == SCRIPT[:8]
    assert reply.status == "incomplete"
    assert reply.incomplete_details.reason == "max_output_tokens"
    assert reply.usage.output_tokens == 8
    assert reply.usage.total_tokens == reply.usage.input_tokens + 8
    assert reply.metadata == {"a": "b"}


def test_a_response_that_ends_by_itself(client):
    reply = ask(client, max_output_tokens=50, extra_body={"vllm_xargs": {"text": "All of it."}})
    assert (reply.status, reply.output_text) == ("completed", "All of it.")
    assert reply.output[0].content[0].annotations == []


def test_a_stream_says_the_same(client):
    options = {"max_output_tokens": 60, "extra_body": {"vllm_xargs": {"text": "Größe 東京."}}}
    whole = ask(client, **options)
    with client.responses.stream(model=MODEL, input="hi", **options) as stream:
        events = list(stream)
        final = stream.get_final_response()
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text == final.output_text
    assert final.usage == whole.usage
    numbers = [event.sequence_number for event in ask(client, stream=True)]
    assert numbers == list(range(len(numbers)))


def test_events_come_in_their_order(client):
    kinds = [event.type.removeprefix("response.") for event in ask(client, stream=True)]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-4:] == [
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "incomplete",
    ]
    assert set(kinds[4:-4]) == {"output_text.delta"}


def test_a_conversation_goes_on_from_a_stored_response(client, server):
    first = ask(client, "one", max_output_tokens=3)
    second = ask(client, "two", previous_response_id=first.id, instructions="s")
    assert second.previous_response_id == first.id
    prompt = server.engine.seen[-1][0]["prompt"]
    assert prompt == "system:s\nuser:one\nassistant:The\nuser:two\nassistant:"


def test_stored_responses_are_read_listed_and_deleted(client):
    reply = ask(client, "one")
    assert client.responses.retrieve(reply.id) == reply
    (item,) = client.responses.input_items.list(reply.id).data
    assert (item.role, item.content) == ("user", "one")
    with pytest.raises(openai.BadRequestError, match="limit"):
        client.responses.input_items.list(reply.id, limit=1)
    client.responses.delete(reply.id)
    for missing in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError, match="no stored response"):
            missing(reply.id)
    with pytest.raises(openai.NotFoundError, match="no stored response") as caught:
        ask(client, previous_response_id=reply.id)
    assert caught.value.param == "previous_response_id"


def test_a_streamed_response_is_stored_when_its_stream_ends(client):
    *_, last = ask(client, stream=True)
    assert client.responses.retrieve(last.response.id).output_text == SCRIPT[:8]


def test_what_is_not_to_be_stored_is_not(client):
    reply = ask(client, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(reply.id)


def test_a_running_response_is_cancelled(client, server):
    slow = {"vllm_xargs": {"sleep": 0.05}}
    stream = client.responses.create(
        model=MODEL, input="hi", max_output_tokens=200, stream=True, extra_body=slow
    )
    events = iter(stream)
    response_id = next(events).response.id
    reply = client.responses.cancel(response_id)
    assert reply.status == "cancelled"
    assert [event.type for event in events][-1] == "response.completed"
    wait_until(lambda: server.engine.num_running == 0, "the request has ended")


def test_a_response_whose_client_leaves_is_not_in_progress_for_ever(client, server):
    slow = {"vllm_xargs": {"sleep": 0.05}}
    stream = client.responses.create(
        model=MODEL, input="hi", max_output_tokens=200, stream=True, extra_body=slow
    )
    response_id = next(iter(stream)).response.id
    stream.close()
    wait_until(lambda: client.responses.retrieve(response_id).status == "cancelled", "cancelled")


def finished(client, response_id):
    wait_until(
        lambda: client.responses.retrieve(response_id).status not in ("queued", "in_progress"),
        "the response has ended",
    )
    return client.responses.retrieve(response_id)


def test_a_background_response_is_written_while_nobody_waits(client):
    reply = ask(client, background=True, extra_body={"vllm_xargs": {"sleep": 0.02}})
    assert (reply.status, reply.background, reply.output) == ("queued", True, [])
    done = finished(client, reply.id)
    assert (done.status, done.output_text) == ("incomplete", SCRIPT[:8])


def test_a_background_stream_is_left_and_taken_up_again(client):
    slow = {"vllm_xargs": {"sleep": 0.02}}
    stream = ask(client, background=True, stream=True, max_output_tokens=20, extra_body=slow)
    first = [next(iter(stream)) for _ in range(6)]
    stream.close()
    response_id = first[0].response.id
    rest = list(
        client.responses.retrieve(
            response_id, stream=True, starting_after=first[-1].sequence_number
        )
    )
    events = [*first, *rest]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == SCRIPT[:20] == rest[-1].response.output_text
    again = list(client.responses.retrieve(response_id, stream=True))
    assert again == events


def test_a_background_response_is_cancelled_or_deleted(client, server):
    slow = {"vllm_xargs": {"sleep": 0.05}}
    options = {"background": True, "max_output_tokens": 200, "extra_body": slow}
    reply = ask(client, **options)
    cancelled = client.responses.cancel(reply.id)
    assert cancelled.status == "cancelled"
    assert client.responses.retrieve(reply.id).status == "cancelled"
    assert list(client.responses.retrieve(reply.id, stream=True))[-1].response == cancelled
    assert client.responses.cancel(reply.id) == cancelled
    deleted = ask(client, **options)
    client.responses.delete(deleted.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(deleted.id)
    wait_until(lambda: server.engine.num_running == 0, "the requests have ended")


def test_a_background_failure_is_told_and_stored(client):
    reply = ask(client, background=True, extra_body={"vllm_xargs": {"error_at": 0}})
    done = finished(client, reply.id)
    assert done.status == "failed"
    assert "NaN logits" in done.error.message
    events = list(client.responses.retrieve(reply.id, stream=True))
    assert [event.type for event in events[-2:]] == ["error", "response.failed"]


def test_streams_of_the_past_are_of_background_responses(client):
    reply = ask(client)
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.retrieve(reply.id, stream=True)
    for query in ({"starting_after": 3}, {"stream": "maybe"}, {"include": "x"}):
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.retrieve(reply.id, extra_query=query)
        assert caught.value.param == next(iter(query))


def test_background_responses_end_with_the_server(make_server, tmp_path):
    store = f"sqlite:///{tmp_path}/responses.db"
    server = make_server(responses_store=store, shutdown_timeout=0)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        reply = ask(
            client, background=True, max_output_tokens=200, extra_body={"vllm_xargs": {"sleep": 1}}
        )
    server.stop()
    later = make_server(responses_store=store)
    with openai.OpenAI(base_url=f"{later.url}/v1", api_key="none") as client:
        assert client.responses.retrieve(reply.id).status == "cancelled"


def test_a_failure_is_told_and_stored(client):
    events = list(ask(client, stream=True, extra_body={"vllm_xargs": {"error_at": 3}}))
    assert [event.type for event in events[-2:]] == ["error", "response.failed"]
    response_id = events[0].response.id
    stored = client.responses.retrieve(response_id)
    assert stored.status == "failed"
    assert "NaN logits" in stored.error.message
    with pytest.raises(openai.InternalServerError):
        ask(client, extra_body={"vllm_xargs": {"error_at": 0}})


def test_items_of_earlier_turns(client, server):
    ask(
        client,
        [
            {"role": "developer", "content": "d"},
            {"role": "user", "content": [{"type": "input_text", "text": "one"}]},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "two", "annotations": []}],
            },
            {"role": "user", "content": "three"},
        ],
    )
    prompt = server.engine.seen[-1][0]["prompt"]
    assert prompt == "system:d\nuser:one\nassistant:two\nuser:three\nassistant:"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"background": True, "store": False}, "background"),
        ({"include": ["file_search_call.results"]}, "include"),
        ({"truncation": "perhaps"}, "truncation"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": -1}, "top_logprobs"),
        ({"max_tool_calls": 0}, "max_tool_calls"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"conversation": {"name": "c"}}, "conversation.id"),
        ({"conversation": "c", "previous_response_id": "r"}, "conversation"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"temperature": 9}, "temperature"),
        ({"max_output_tokens": 100_000}, "max_output_tokens"),
        ({"reasoning": {"summary": "auto"}}, "reasoning"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_its_name(client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **fields)
    assert caught.value.param == param


def test_the_store_is_bounded(make_server):
    server = make_server(responses_store_size=5)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        ids = [
            client.responses.create(model="", input="a", max_output_tokens=1).id for _ in "123456"
        ]
        kept = [client.responses.retrieve(one).id for one in ids[1:]]
        assert kept == ids[1:]
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(ids[0])


def test_a_response_that_is_being_written_is_there_though_the_store_is_full(make_server):
    server = make_server(responses_store_size=2)
    slow = {"vllm_xargs": {"sleep": 0.05}}
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        running = client.responses.create(
            model="", input="a", max_output_tokens=200, background=True, extra_body=slow
        )
        for _ in range(4):
            client.responses.create(model="", input="b", max_output_tokens=1)
        shown = client.responses.retrieve(running.id)
        assert (shown.id, shown.status) == (running.id, "in_progress")
        assert client.responses.input_items.list(running.id).data[0].content == "a"
        assert client.responses.cancel(running.id).status == "cancelled"
        assert client.responses.retrieve(running.id).status == "cancelled"
        for _ in range(2):
            client.responses.create(model="", input="b", max_output_tokens=1)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(running.id)


def test_a_response_that_was_deleted_while_it_was_written_stays_deleted(client, server):
    slow = {"vllm_xargs": {"sleep": 0.02}}
    stream = iter(ask(client, stream=True, extra_body=slow))
    response_id = next(stream).response.id
    client.responses.delete(response_id)
    *_, last = stream
    assert last.response.output_text == SCRIPT[:8]
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response_id)


def test_clients_see_their_own_responses_only(make_server):
    server = make_server(api_key=("one", "two"))

    def client(key):
        return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)

    with client("one") as one, client("two") as two:
        reply = one.responses.create(model="", input="a", max_output_tokens=1)
        assert one.responses.retrieve(reply.id).id == reply.id
        with pytest.raises(openai.NotFoundError):
            two.responses.retrieve(reply.id)


TOOL = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "東京"}}\n</tool_call>'


@pytest.fixture
def caller(make_server):
    """A client of a server whose model calls tools as Hermes does, and reasons in tags."""
    server = make_server(tool_call_parser="hermes", reasoning_parser="deepseek_r1")
    server.engine.script = f"<think>Look it up.</think>I will look.{CALL}"
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    client.engine = server.engine
    with client:
        yield client


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_and_its_result_goes_back(caller, stream):
    options = {"model": "", "input": "hi", "tools": [TOOL], "max_output_tokens": 200}
    if stream:
        with caller.responses.stream(**options) as events:
            kinds = [event.type for event in events]
            reply = events.get_final_response()
        assert "response.function_call_arguments.delta" in kinds
        assert "response.reasoning_text.done" in kinds
    else:
        reply = caller.responses.create(**options)
    assert [item.type for item in reply.output] == ["reasoning", "message", "function_call"]
    assert reply.output[0].content[0].text == "Look it up."
    assert reply.output_text == "I will look."
    call = reply.output[2]
    assert (call.name, call.status) == ("get_weather", "completed")
    assert json.loads(call.arguments) == {"city": "東京"}
    caller.engine.script = "It is sunny."
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    after = caller.responses.create(
        model="", input=[result], previous_response_id=reply.id, tools=[TOOL]
    )
    assert after.output_text == "It is sunny."
    assert caller.engine.seen[-1][0]["prompt"].endswith("tool:sunny\nassistant:")
