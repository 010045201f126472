"""The small real model behind a real server process, as a client sees it."""

import contextlib
import math

import httpx
import openai
import pytest

from support.completions import chunks, complete, status
from support.http_server import metric, wait_until

USER = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture
def url(real_url):
    return real_url


@pytest.fixture
def model(url):
    return httpx.get(f"{url}/v1/models").json()["data"][0]["id"]


@pytest.fixture
def client(url):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_chat_whole_and_streamed(client, model):
    fields = {"model": model, "messages": USER, "temperature": 0, "max_tokens": 16}
    whole = client.chat.completions.create(**fields)
    assert "Paris" in whole.choices[0].message.content
    options = {"include_usage": True}
    streamed = list(client.chat.completions.create(**fields, stream=True, stream_options=options))
    text = "".join(c.choices[0].delta.content or "" for c in streamed if c.choices)
    assert text == whole.choices[0].message.content
    assert streamed[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_usage_counts_the_tokens_of_the_template(client, url, model):
    reply = client.chat.completions.create(model=model, messages=USER, max_tokens=1)
    body = httpx.post(f"{url}/tokenize", json={"messages": USER}).json()
    assert reply.usage.prompt_tokens == body["count"]
    begin = httpx.post(f"{url}/detokenize", json={"tokens": body["tokens"]}).json()["prompt"]
    assert begin.startswith("<|im_start|>system")
    assert begin.count("<|im_start|>") == 3


def test_a_stop_string_across_tokens_never_shows(url):
    prompt = "Count: one two three"
    text = complete(url, prompt=prompt, max_tokens=12)["choices"][0]["text"]
    stop = text[7:17]
    before = text[: text.index(stop)]
    whole = complete(url, prompt=prompt, max_tokens=12, stop=[stop])["choices"][0]
    assert (whole["text"], whole["finish_reason"], whole["stop_reason"]) == (before, "stop", stop)
    pieces = [c["choices"][0] for c in chunks(url, prompt=prompt, max_tokens=12, stop=[stop])]
    assert "".join(piece["text"] for piece in pieces) == before
    assert pieces[-1]["stop_reason"] == stop


def test_a_stop_string_waits_for_min_tokens(url):
    text = complete(url, prompt="test/", max_tokens=4)["choices"][0]["text"]
    stop = text[1:3]
    reply = complete(url, prompt="test/", max_tokens=12, min_tokens=10, stop=[stop])
    assert reply["usage"]["completion_tokens"] >= 10


def test_a_prompt_is_scored_without_generating(url):
    prompt = "The sky is blue"
    reply = complete(url, prompt=prompt, max_tokens=0, echo=True, logprobs=1)
    (choice,) = reply["choices"]
    logprobs = choice["logprobs"]
    assert choice["text"] == "".join(logprobs["tokens"]) == prompt
    assert reply["usage"]["completion_tokens"] == 0
    assert logprobs["token_logprobs"][0] is None
    assert all(math.isfinite(value) and value <= 0 for value in logprobs["token_logprobs"][1:])
    with_answer = complete(url, prompt=prompt, max_tokens=2, echo=True, logprobs=1, top_k=1)
    assert with_answer["choices"][0]["logprobs"]["token_logprobs"][1:4] == pytest.approx(
        logprobs["token_logprobs"][1:4], abs=1e-4
    )


def test_prompt_logprobs_are_the_same_again(url):
    prompt = list(range(100, 140))
    first, second = (
        complete(url, prompt=prompt, max_tokens=1, prompt_logprobs=1) for _ in range(2)
    )
    values = [
        [entry and {k: v["logprob"] for k, v in entry.items()}
         for entry in reply["choices"][0]["prompt_logprobs"]]
        for reply in (first, second)
    ]  # fmt: skip
    assert len(values[0]) == len(prompt)
    for one, other in zip(*values, strict=True):
        assert one == (other and pytest.approx(other, abs=1e-4))


def test_logprobs_are_those_before_temperature_and_truncation(url):
    plain = complete(url, prompt="a", max_tokens=1, logprobs=3)
    other = complete(url, prompt="a", max_tokens=1, logprobs=3, temperature=1.7, top_k=2, seed=1)

    def top(reply):
        entries = reply["choices"][0]["logprobs"]["top_logprobs"][0]
        return sorted(entries.values(), reverse=True)[:3]

    assert top(plain) == pytest.approx(top(other), abs=1e-4)


def test_tiny_temperatures_are_greedy(url):
    replies = [
        complete(url, prompt="The capital of France is", max_tokens=4, temperature=temperature)
        for temperature in (0, 0.0001, 1e-8, 1e-30)
    ]
    assert len({reply["choices"][0]["text"] for reply in replies}) == 1


def test_seeded_choices_differ_and_come_again(url):
    body = {"prompt": "Once", "n": 4, "seed": 7, "temperature": 1, "max_tokens": 8}
    first, second = (
        [choice["text"] for choice in complete(url, **body)["choices"]] for _ in range(2)
    )
    assert first == second
    assert len(set(first)) == 4
    streamed = [""] * 4
    for chunk in chunks(url, **body):
        for choice in chunk["choices"]:
            streamed[choice["index"]] += choice["text"]
    assert streamed == first


def test_bad_words_do_not_show(url):
    text = complete(url, prompt="The capital of France is", max_tokens=8)["choices"][0]["text"]
    assert "Paris" in text
    text = complete(url, prompt="The capital of France is", max_tokens=8, bad_words=["Paris"])
    assert "Paris" not in text["choices"][0]["text"]


@pytest.mark.parametrize(
    ("body", "allowed"),
    [
        ({"prompt": ""}, {400}),
        ({"prompt": [""]}, {400}),
        ({"prompt": "   \n\t"}, {200}),
        ({"prompt": "\u200b\u200b"}, {200}),
        ({"prompt": [0, 1, 10_000_000]}, {400}),
        ({"prompt": [-1]}, {400}),
        ({"prompt": "a", "n": 5_000_000}, {400}),
        ({"prompt": "a", "logit_bias": {"99999999": -100}}, {400}),
        ({"prompt": "a", "bad_words": ["\u0001"]}, {200, 400}),
        ({"prompt": "a", "max_tokens": 100_000}, {400}),
        ({"prompt": "a " * 9000}, {400}),
    ],
)
def test_odd_requests_are_answered_and_the_server_goes_on(url, body, allowed):
    assert status(url, **{"max_tokens": 2, **body}) in allowed


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_everything(url, stream):
    body = {"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": stream}
    before = metric(url, "kv_cache_usage_perc")
    # A client that gives up: it closes the connection.
    with httpx.Client(timeout=0.5) as client, contextlib.suppress(httpx.ReadTimeout):
        if stream:
            with client.stream("POST", f"{url}/v1/completions", json=body) as reply:
                next(reply.iter_lines())
        else:
            client.post(f"{url}/v1/completions", json=body)
    wait_until(lambda: metric(url, "num_requests_running") == 0, "the request has ended")
    assert metric(url, "kv_cache_usage_perc") == pytest.approx(before, abs=1e-6)


def test_a_salt_separates_and_shares_the_prefix_cache(url):
    prompt = "All work and no play makes a dull day. " * 12

    def cached(salt):
        fields = {} if salt is None else {"cache_salt": salt}
        reply = complete(url, prompt=prompt, max_tokens=1, **fields)
        return reply["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert [cached(salt) for salt in ("A", "A", "B", None)] == [0, cached("A"), 0, 0]
    assert cached("A") >= 64
    assert status(url, prompt=prompt, cache_salt="") == 400


def test_echo_in_a_stream_of_several_choices(url):
    texts = [""] * 4
    for chunk in chunks(url, prompt=["ab", "cd"], n=2, echo=True, max_tokens=3):
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]
    assert [text[:2] for text in texts] == ["ab", "ab", "cd", "cd"]
    assert texts[0] == texts[1]
