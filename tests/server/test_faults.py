"""What is known to break servers, sent to a real one: each is answered, and the server goes on."""

import asyncio
import json
import math
import threading

import httpx
import psutil
import pytest

from support.completions import chunks, complete
from support.http_server import metric, wait_until

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"v": '}}
FLOATS = (
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)


@pytest.fixture
def url(real_url):
    return real_url


@pytest.fixture
def post(url):
    """post(path, body): the answer to a body, which is bytes or becomes JSON."""
    with httpx.Client(base_url=url, timeout=120) as client:

        def send(path, body):
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            return client.post(path, content=data)

        yield send


def raw(path, fields):
    """A request whose last fields are written as they are."""
    begin = {CHAT: b'{"messages": [{"role": "user", "content": "a"}]', TEXT: b'{"prompt": "a"'}
    return path, begin[path] + b', "max_tokens": 2, ' + fields + b"}"


NOT_JSON = [
    raw(TEXT, b'"%s": %s' % (name.encode(), value))
    for name in FLOATS
    for value in (b"NaN", b"Infinity", b"-Infinity", b"1e999")
]
BROKEN = [
    *NOT_JSON,
    raw(TEXT, b'"logit_bias": {"5": NaN}'),
    raw(CHAT, b'"tools": ' + b"[" * 50_000 + b"]" * 50_000),
    raw(CHAT, b'"chat_template_kwargs": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000),
    (CHAT, rb'{"messages": [{"role": "user", "content": "x \ud83d y"}]}'),
    (CHAT, b'{"messages": [{"role": "user", "content": "x \xff y"}]}'),
    (CHAT, b'[{"messages": []}]'),
    (CHAT, b'{"messages": ['),
    (TEXT, b""),
]
REFUSED = [
    (TEXT, {"prompt": "a", "stop": ["b"], "detokenize": False}, "stop"),
    (TEXT, {"prompt": "a", "stop": [f"s{i:05}" for i in range(10_000)]}, "stop"),
    (TEXT, {"prompt": "a", "n": 5_000_000}, "n"),
    (TEXT, {"prompt": ["a"] * 4_000, "n": 16_000}, "n"),
    (TEXT, {"prompt": "a", "logit_bias": {"x": 1}}, "logit_bias"),
    (TEXT, {"prompt": "a", "logit_bias": {"-1": 1}}, "logit_bias"),
    (TEXT, {"prompt": "a", "repetition_penalty": 1e-320}, "repetition_penalty"),
    (TEXT, {"prompt": "a", "allowed_token_ids": [2], "min_tokens": 1}, "allowed_token_ids"),
    (TEXT, {"prompt": "a", "cache_salt": 5}, "cache_salt"),
    (CHAT, {"messages": USER, "max_completion_tokens": 100_000}, "max_completion_tokens"),
    (
        CHAT,
        {"messages": USER, "chat_template_kwargs": {"chat_template": "{{ 'x' * 10**9 }}"}},
        "chat_template_kwargs",
    ),
    (
        CHAT,
        {"messages": USER, "chat_template_kwargs": {"documents": [{"text": "a"}]}},
        "chat_template_kwargs",
    ),
    (
        CHAT,
        {"messages": USER, "structured_outputs": {"regex": "[a-"}},
        "structured_outputs.regex",
    ),
    (
        CHAT,
        {
            "messages": USER,
            "response_format": {"type": "json_schema", "json_schema": {"name": "s"}},
        },
        "response_format.json_schema.schema",
    ),
]
NOT_BUILT = [
    (CHAT, {"guided_json": {}}),
    (CHAT, {"tools": [TOOL]}),
    (CHAT, {"tools": [TOOL], "tool_choice": "required"}),
    (CHAT, {"reasoning_effort": "high"}),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
    (TEXT, {"prompt_embeds": "AAAA", "frequency_penalty": 1}),
    (TEXT, {"length_penalty": 2.0}),
    (TEXT, {"use_beam_search": True, "stop": ["x"]}),
    (TEXT, {"use_beam_search": True, "stream": True}),
    (TEXT, {"thinking_token_budget": 5}),
    (TEXT, {"best_of": 3}),
    (TEXT, {"suffix": "the end"}),
]


def test_broken_bodies_are_told_so(post):
    for path, body in BROKEN:
        reply = post(path, body)
        assert reply.status_code == 400, (body[:80], reply.text)
        assert reply.json()["error"]["type"] == "BadRequestError"


def test_refused_values_are_named(post):
    for path, body, param in REFUSED:
        reply = post(path, body)
        assert reply.status_code == 400, (body, reply.text)
        assert reply.json()["error"]["param"] == param


def test_what_is_not_there_is_refused_and_not_passed_over(post):
    for path, fields in NOT_BUILT:
        body = {"messages": USER} if path == CHAT else {"prompt": "a"}
        reply = post(path, body | {"max_tokens": 8} | fields)
        assert reply.status_code == 400, (fields, reply.text)
        assert reply.json()["error"]["param"].partition("[")[0] in fields


def test_a_refusal_costs_no_memory(real_process, post):
    processes = [psutil.Process(real_process.process.pid), *real_process.children()]

    def resident():
        return sum(process.memory_info().rss for process in processes)

    post(TEXT, {"prompt": "a", "max_tokens": 1})
    before = resident()
    for n in (5_000_000, 1 << 40):
        assert post(TEXT, {"prompt": "a", "n": n, "max_tokens": 1}).status_code == 400
    assert resident() - before < 50 << 20


def test_a_conversation_goes_on_after_a_tool_call_that_was_cut_off(post):
    messages = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "invalid"},
        {"role": "user", "content": "continue"},
    ]
    reply = post(CHAT, {"messages": messages, "max_tokens": 2})
    assert reply.status_code == 200, reply.text


def test_an_echoed_prompt_is_scored_whatever_sampling_leaves_out(url):
    reply = complete(
        url, prompt="correct horse", echo=True, logprobs=1, temperature=1, top_k=1, max_tokens=3
    )
    logprobs = reply["choices"][0]["logprobs"]
    assert len({len(values) for values in logprobs.values()}) == 1
    first, *others = logprobs["token_logprobs"]
    assert first is None
    assert all(math.isfinite(value) for value in others)


def test_others_are_served_while_a_huge_prompt_is_looked_at(url, post):
    huge = json.dumps({"prompt": "hello world " * 1_600_000}).encode()
    seen = []
    done = threading.Event()

    def read():
        fields = {"prompt": "a", "max_tokens": 400, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", url + TEXT, json=fields, timeout=60) as reply:
            for line in reply.iter_lines():
                if line and not done.is_set():
                    seen.append(line)
                elif done.is_set():
                    return

    reader = threading.Thread(target=read)
    reader.start()
    wait_until(lambda: seen, "the stream runs")
    before = len(seen)
    reply = post(TEXT, huge)
    during = len(seen) - before
    done.set()
    reader.join()
    assert reply.status_code == 400
    assert "characters" in reply.json()["error"]["message"]
    assert during


async def test_those_who_stay_get_their_own_text_while_others_leave(url):
    def body(number):
        penalty = {"frequency_penalty": 1.5} if number % 2 else {}
        return {"prompt": f"{number} +", "max_tokens": 3 + number, "temperature": 0, **penalty}

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:

        async def stay(number):
            return (await client.post(TEXT, json=body(number))).json()["choices"][0]["text"]

        async def leave(number):
            endless = body(number) | {"max_tokens": 2000, "ignore_eos": True}
            with pytest.raises(httpx.TimeoutException):
                await client.post(TEXT, json=endless, timeout=0.1 + number / 20)

        staying = (stay(number) for number in range(6))
        together = await asyncio.gather(*staying, *(leave(number) for number in range(6)))
    assert together[:6] == [complete(url, **body(n))["choices"][0]["text"] for n in range(6)]


def test_n_with_stop_strings_streams_every_choice_to_its_own_end(url):
    fields = {"prompt": "Once upon a time", "n": 8, "seed": 5, "temperature": 1, "max_tokens": 12}
    fields["stop"] = [",", " the"]
    whole = complete(url, **fields)
    texts, finishes = [""] * 8, [[] for _ in range(8)]
    for chunk in chunks(url, **fields):
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]
            if choice["finish_reason"]:
                finishes[choice["index"]].append((choice["finish_reason"], choice["stop_reason"]))
    assert texts == [choice["text"] for choice in whole["choices"]]
    assert finishes == [[(c["finish_reason"], c["stop_reason"])] for c in whole["choices"]]


def test_a_request_that_waits_is_forgotten_when_its_client_leaves(url):
    """More sequences than run at once; all of one client, which gives up."""
    body = {"prompt": ["a"] * 200, "max_tokens": 500, "ignore_eos": True}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(url + TEXT, json=body, timeout=1.0)
    for gauge in ("num_requests_running", "num_requests_waiting"):
        wait_until(lambda gauge=gauge: metric(url, gauge) == 0, gauge)
