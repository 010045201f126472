"""Thinking by Anthropic's official client over a socket, the engine faked."""

import json

import anthropic
import httpx
import pytest

from support.fake_async_llm import FakeAsyncLLM
from support.tiny import fake_config

USER = [{"role": "user", "content": "hi"}]
ENABLED = {"type": "enabled", "budget_tokens": 1024}
ANSWER = "<think>Größe? Look it up.</think>It is 東京."
PLAIN = (
    "{% for m in messages %}{{ m.role }}:{{ m.content }}"
    "{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{{ '\n' }}{% endfor %}"
)
SWITCHED = PLAIN + "{% if enable_thinking is defined %}thinks={{ enable_thinking }}{% endif %}"
EFFORT = PLAIN + "{% if reasoning_effort is defined %}effort={{ reasoning_effort }}{% endif %}"


@pytest.fixture
def thinker(make_server):
    """thinker(template, reasoning_parser=...): a client of a model that thinks in tags."""
    clients = []

    def make(template=PLAIN, reasoning_parser="deepseek_r1"):
        engine = FakeAsyncLLM(fake_config(chat_template=template), clamp_max_tokens=True)
        engine.script = ANSWER
        server = make_server(engine, reasoning_parser=reasoning_parser)
        clients.append(anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0))
        clients[-1].engine = engine
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def ask(client, **fields):
    options = {"model": "", "messages": USER, "max_tokens": 2000, **fields}
    return client.messages.create(**options)


def seen(client):
    """(prompt, budget) of the last request that reached the engine."""
    prompt, params, _ = client.engine.seen[-1]
    return prompt["prompt"], params.thinking_token_budget


def test_a_budget_and_a_switch_reach_the_model(thinker):
    switched = thinker(SWITCHED)
    for thinking, end, budget in (
        (ENABLED, "thinks=True", 1024),
        ({"type": "adaptive"}, "thinks=True", None),
        ({"type": "disabled"}, "thinks=False", None),
    ):
        ask(switched, thinking=thinking)
        assert seen(switched) == (f"user:hi\n{end}", budget)
    ask(switched)
    assert seen(switched) == ("user:hi\n", None)
    own = {"chat_template_kwargs": {"enable_thinking": "perhaps"}}
    ask(switched, thinking=ENABLED, extra_body=own)
    assert seen(switched)[0].endswith("thinks=perhaps")


def test_a_model_without_a_switch_is_kept_from_thinking_by_its_budget(thinker):
    client = thinker()
    for thinking, budget in ((ENABLED, 1024), ({"type": "adaptive"}, None)):
        ask(client, thinking=thinking)
        assert seen(client) == ("user:hi\n", budget)
    ask(client, thinking={"type": "disabled"})
    assert seen(client) == ("user:hi\n", 0)


def test_a_model_that_does_not_think(thinker):
    client = thinker(reasoning_parser="none")
    for thinking in ({"type": "disabled"}, {"type": "adaptive"}):
        ask(client, thinking=thinking)
        assert seen(client)[1] is None
    with pytest.raises(
        anthropic.BadRequestError, match=r"thinking\.budget_tokens: it is not known"
    ):
        ask(client, thinking=ENABLED)


@pytest.mark.parametrize(
    ("thinking", "words"),
    [
        ({"type": "enabled", "budget_tokens": 2000}, "must be below max_tokens=2000"),
        ({"type": "enabled", "budget_tokens": 1023}, "least budget, 1024"),
        ({"type": "enabled", "budget_tokens": -1}, "least budget, 1024"),
        ({"type": "enabled"}, r"budget_tokens is missing"),
        ({"type": "adaptive", "budget_tokens": 1024}, "for thinking.type 'enabled'"),
        ({"type": "perhaps"}, "thinking.type"),
        ({"type": "enabled", "budget_tokens": "many"}, "thinking.budget_tokens"),
        ({**ENABLED, "display": "aloud"}, "thinking.display"),
        ({**ENABLED, "depth": 3}, "depth"),
    ],
)
def test_what_cannot_be_honoured_is_refused(thinker, thinking, words):
    with pytest.raises(anthropic.BadRequestError, match=words) as caught:
        ask(thinker(), thinking=thinking)
    assert caught.value.body["error"]["type"] == "invalid_request_error"


def test_thoughts_are_streamed_and_signed(thinker):
    client = thinker()
    whole = ask(client, thinking=ENABLED)
    thought, text = whole.content
    assert (thought.type, thought.thinking) == ("thinking", "Größe? Look it up.")
    assert len(thought.signature) > 20
    assert text.text == "It is 東京."
    options = {"model": "", "messages": USER, "max_tokens": 2000, "thinking": ENABLED}
    with client.messages.stream(**options) as stream:
        events = list(stream)
        final = stream.get_final_message()
    assert [block.to_dict() for block in final.content] == [
        block.to_dict() for block in whole.content
    ]
    deltas = [
        event.delta.type for event in events if event.type == "content_block_delta"
    ]  # the raw ones
    assert deltas.count("thinking_delta") > 3
    assert deltas.count("signature_delta") == 1
    last_thought = max(i for i, kind in enumerate(deltas) if kind == "thinking_delta")
    assert deltas.index("signature_delta") == last_thought + 1
    assert deltas[-1] == "text_delta"
    raw = list(ask(client, thinking=ENABLED, stream=True))
    kinds = [(event.type, getattr(event, "index", None)) for event in raw if event.type != "ping"]
    first_stop = kinds.index(("content_block_stop", 0))
    assert raw[first_stop].type in ("content_block_delta", "content_block_stop")
    assert kinds[first_stop + 1] == ("content_block_start", 1)


@pytest.mark.parametrize("stream", [False, True])
def test_a_thought_that_is_cut_off_is_signed_too(thinker, stream):
    client = thinker()
    client.engine.script = "<think>So much to say"
    options = {"model": "", "messages": USER, "max_tokens": 2000, "thinking": ENABLED}
    if stream:
        with client.messages.stream(**options) as events:
            reply = events.get_final_message()
    else:
        reply = client.messages.create(**options)
    (thought,) = reply.content
    assert (thought.thinking, bool(thought.signature)) == ("So much to say", True)


@pytest.mark.parametrize("stream", [False, True])
def test_hidden_thoughts_come_back_within_their_signatures(thinker, stream):
    client = thinker()
    options = {
        "model": "",
        "messages": USER,
        "max_tokens": 2000,
        "thinking": {**ENABLED, "display": "omitted"},
    }
    if stream:
        with client.messages.stream(**options) as events:
            seen_text = [event for event in events if event.type == "thinking"]
            reply = events.get_final_message()
        assert seen_text == []
    else:
        reply = client.messages.create(**options)
    assert reply.content[0].thinking == ""
    history = [*USER, {"role": "assistant", "content": reply.content}, *USER]
    ask(client, messages=history)
    assert seen(client)[0] == "user:hi\nassistant:It is 東京.(Größe? Look it up.)\nuser:hi\n"


def test_signatures_of_others_are_carried_and_not_read(thinker):
    client = thinker()
    for signature in ("EqQBCgIYAhIM", "octavo1.%%%", "octavo1._w==", ""):
        block = {"type": "thinking", "thinking": "", "signature": signature}
        text = {"type": "text", "text": "a"}
        ask(client, messages=[*USER, {"role": "assistant", "content": [block, text]}, *USER])
        assert seen(client)[0] == "user:hi\nassistant:a\nuser:hi\n"


def test_tokens_are_counted_with_what_the_switch_adds(thinker):
    client = thinker(SWITCHED)
    base = client.messages.count_tokens(model="", messages=USER).input_tokens
    off = client.messages.count_tokens(model="", messages=USER, thinking={"type": "disabled"})
    assert off.input_tokens == base + len("thinks=False")
    with pytest.raises(anthropic.BadRequestError, match="least budget"):
        client.messages.count_tokens(
            model="", messages=USER, thinking={"type": "enabled", "budget_tokens": 3}
        )


def test_effort_and_form_of_the_answer(thinker):
    client = thinker(EFFORT)
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    config = {"effort": "low", "format": {"type": "json_schema", "schema": schema}}
    ask(client, output_config=config)
    prompt, params, _ = client.engine.seen[-1]
    assert prompt["prompt"] == "user:hi\neffort=low"
    assert json.loads(params.structured_outputs.json) == schema
    with pytest.raises(anthropic.BadRequestError, match=r"output_config\.effort"):
        ask(thinker(), output_config={"effort": "low"})
    bad = {"type": "object", "minProperties": "x"}
    with pytest.raises(anthropic.BadRequestError, match=r"output_config\.format\.schema"):
        ask(client, output_config={"format": {"type": "json_schema", "schema": bad}})


def test_the_description_of_errors_is_the_apis_own(make_server):
    url = make_server().url
    document = httpx.get(f"{url}/openapi.json").json()
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        shown = document["paths"][path]["post"]["responses"]["default"]["content"]
        name = shown["application/json"]["schema"]["$ref"].rpartition("/")[2]
        schema = document["components"]["schemas"][name]
        error = httpx.post(url + path, json={}).json()
        assert set(schema["required"]) <= set(error)
        assert set(error) <= set(schema["properties"])
        assert error["type"] == "error"
