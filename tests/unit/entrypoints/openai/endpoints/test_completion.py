"""/v1/completions over a fake engine."""

import math

import pytest

from octavo.entrypoints.openai import beams
from support.fake_async_llm import SCRIPT


def word(k):
    """What choice k of n is answered with."""
    words = SCRIPT.split(" ")
    return " ".join(words[k % len(words) :] + words[: k % len(words)])


async def test_a_plain_answer(client):
    reply = await client.complete("ab", max_tokens=5, temperature=0)
    body = reply.json()
    assert reply.status_code == 200
    assert body["object"] == "text_completion"
    assert body["id"].startswith("cmpl-")
    assert body["choices"] == [
        {"index": 0, "text": SCRIPT[:5], "logprobs": None, "finish_reason": "length",
         "stop_reason": None}
    ]  # fmt: skip
    assert body["usage"] == {"prompt_tokens": 2, "completion_tokens": 5, "total_tokens": 7}


async def test_max_tokens_is_16_by_default(client):
    body = (await client.complete()).json()
    assert body["usage"]["completion_tokens"] == 16


async def test_the_default_length_is_lowered_to_the_room_there_is(client):
    room = client.engine.config.model.max_model_len - 250
    body = (await client.complete("a" * 250)).json()
    assert body["usage"]["completion_tokens"] == room


async def test_an_explicit_length_that_does_not_fit_is_refused(client):
    reply = await client.complete("a" * 250, max_tokens=100)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "max_tokens"


async def test_or_lowered_where_the_server_does_that(make_client):
    client = await make_client(engine={"clamp_max_tokens": True})
    body = (await client.complete("a" * 250, max_tokens=100)).json()
    assert body["usage"]["completion_tokens"] == client.engine.config.model.max_model_len - 250


async def test_a_stream_equals_the_whole_answer(client):
    for max_tokens in (1, 7, 60):
        whole = (await client.complete(max_tokens=max_tokens)).json()["choices"][0]
        events = await client.events(await client.complete(max_tokens=max_tokens, stream=True))
        choices = [event["choices"][0] for event in events]
        assert "".join(choice["text"] for choice in choices) == whole["text"]
        assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
        assert choices[-1]["finish_reason"] == whole["finish_reason"] == "length"
        assert {event["id"] for event in events} == {events[0]["id"]}
        assert all("usage" not in event for event in events)


async def test_half_characters_are_never_sent(client):
    text = "é東👨‍👩‍👧"
    reply = await client.complete(stream=True, max_tokens=60, vllm_xargs={"text": text})
    events = await client.events(reply)
    assert "".join(event["choices"][0]["text"] for event in events) == text
    assert all("\ufffd" not in event["choices"][0]["text"] for event in events)


async def test_usage_of_a_stream_comes_once_and_last(client):
    options = {"include_usage": True}
    reply = await client.complete(max_tokens=5, stream=True, stream_options=options)
    *events, last = await client.events(reply)
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 2, "completion_tokens": 5, "total_tokens": 7}
    assert all(event["usage"] is None for event in events)


async def test_continuous_usage_counts_up(client):
    options = {"include_usage": True, "continuous_usage_stats": True}
    reply = await client.complete(max_tokens=5, stream=True, stream_options=options)
    events = await client.events(reply)
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == [1, 2, 3, 4, 5, 5]


async def test_forced_usage(make_client):
    client = await make_client(server={"enable_force_include_usage": True})
    events = await client.events(await client.complete(max_tokens=2, stream=True))
    assert events[-1]["usage"]["completion_tokens"] == 2


async def test_stream_options_without_a_stream(client):
    reply = await client.complete(stream_options={"include_usage": True})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "stream_options"


@pytest.mark.parametrize("stream", [False, True])
async def test_choices_of_several_prompts_and_n(client, stream):
    reply = await client.complete(["ab", "cde"], n=2, max_tokens=4, stream=stream)
    if stream:
        texts = ["", "", "", ""]
        for event in await client.events(reply):
            for choice in event["choices"]:
                texts[choice["index"]] += choice["text"]
    else:
        choices = reply.json()["choices"]
        assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
        texts = [choice["text"] for choice in choices]
        assert reply.json()["usage"]["prompt_tokens"] == 5
        assert reply.json()["usage"]["completion_tokens"] == 16
    assert texts == [word(0)[:4], word(1)[:4]] * 2


@pytest.mark.parametrize("max_tokens", [0, 3])
@pytest.mark.parametrize("stream", [False, True])
async def test_echo_begins_each_choice_once_with_its_prompt(client, stream, max_tokens):
    reply = await client.complete(
        ["ab", "cde"], n=2, max_tokens=max_tokens, echo=True, stream=stream
    )
    texts, finishes = [""] * 4, [None] * 4
    bodies = await client.events(reply) if stream else [reply.json()]
    for choice in [choice for body in bodies for choice in body["choices"]]:
        texts[choice["index"]] += choice["text"]
        finishes[choice["index"]] = choice["finish_reason"]
    answers = [word(0)[:max_tokens], word(1)[:max_tokens]]
    assert texts == [prompt + answer for prompt in ("ab", "cde") for answer in answers]
    assert finishes == ["length"] * 4


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("max_tokens", [0, 3])
async def test_echo_with_logprobs_scores_the_prompt(client, stream, max_tokens):
    reply = await client.complete(
        "abc", n=2, max_tokens=max_tokens, echo=True, logprobs=2, stream=stream
    )
    parts = [{"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
             for _ in range(2)]  # fmt: skip
    texts = ["", ""]
    bodies = await client.events(reply) if stream else [reply.json()]
    for choice in [choice for body in bodies for choice in body["choices"]]:
        texts[choice["index"]] += choice["text"]
        for name, values in parts[choice["index"]].items():
            values += choice["logprobs"][name]
    for text, part in zip(texts, parts, strict=True):
        assert part["tokens"] == list(text)
        assert len(text) == 3 + max_tokens
        assert part["token_logprobs"] == [None] + [-1.0] * (2 + max_tokens)
        assert part["top_logprobs"][0] is None
        assert part["text_offset"] == list(range(len(text)))


@pytest.mark.parametrize("as_ids", [False, True])
async def test_logprobs_of_a_stream_are_those_of_the_whole_answer(client, as_ids):
    """Also where text is held back, and where a token is written otherwise than it reads."""
    fields = {"max_tokens": 200, "logprobs": 1, "stop": ["end.X", "Größe isX"]}
    fields["return_tokens_as_token_ids"] = as_ids
    whole = (await client.complete(**fields)).json()["choices"][0]
    events = await client.events(await client.complete(**fields, stream=True))
    parts = [event["choices"][0]["logprobs"] for event in events]
    for name, values in whole["logprobs"].items():
        assert [value for part in parts for value in part[name]] == values
    # Two letters before this token take two tokens each.
    assert whole["text"][whole["logprobs"]["text_offset"][51] :].startswith("e ist")


async def test_logprobs_hold_the_chosen_token_and_the_likeliest(client):
    body = (await client.complete(max_tokens=2, logprobs=3)).json()
    logprobs = body["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["T", "h"]
    assert [set(top) for top in logprobs["top_logprobs"]] == [{"T", "U", "V"}, {"h", "i", "j"}]
    only_chosen = (await client.complete(max_tokens=1, logprobs=0)).json()["choices"][0]
    assert only_chosen["logprobs"]["top_logprobs"] == [{"T": -1.0}]


async def test_tokens_as_token_ids(client, make_client):
    forced = await make_client(server={"return_tokens_as_token_ids": True})
    for one, fields in ((client, {"return_tokens_as_token_ids": True}), (forced, {})):
        body = (await one.complete(max_tokens=1, logprobs=1, **fields)).json()
        (token,) = body["choices"][0]["logprobs"]["tokens"]
        assert token == f"token_id:{one.engine.tokenizer.encode('T', False)[0]}"


@pytest.mark.parametrize("stream", [False, True])
async def test_token_ids_are_returned(client, stream):
    encode = client.engine.tokenizer.encode
    reply = await client.complete("ab", max_tokens=3, return_token_ids=True, stream=stream)
    bodies = await client.events(reply) if stream else [reply.json()]
    choices = [body["choices"][0] for body in bodies]
    assert choices[0]["prompt_token_ids"] == encode("ab")
    tokens = [token for choice in choices for token in choice["token_ids"]]
    assert tokens == encode(SCRIPT[:3], False)


async def test_prompt_logprobs(client):
    choice = (await client.complete("abc", max_tokens=1, prompt_logprobs=1)).json()["choices"][0]
    first, *rest = choice["prompt_logprobs"]
    assert first is None
    assert [len(position) for position in rest] == [2, 2]
    assert all(math.isfinite(e["logprob"]) for position in rest for e in position.values())
    assert (await client.complete(prompt_logprobs=1, stream=True)).status_code == 400


async def test_all_prompt_logprobs_are_more_than_those_of_echo(make_client):
    client = await make_client(max_logprobs=-1)
    await client.complete("abc", max_tokens=1, prompt_logprobs=-1, echo=True, logprobs=2)
    assert client.engine.seen[-1][1].prompt_logprobs == -1


async def test_prompts_as_token_ids(client):
    for prompt in ([70, 71], [[70, 71], [72]]):
        reply = await client.complete(prompt, max_tokens=1, echo=True)
        texts = [choice["text"] for choice in reply.json()["choices"]]
        decode = client.engine.tokenizer.decode
        lists = prompt if isinstance(prompt[0], list) else [prompt]
        assert texts == [decode(ids) + "T" for ids in lists]


async def test_a_truncated_prompt_is_echoed_as_it_ran(client):
    reply = await client.complete("abcdef", max_tokens=0, echo=True, truncate_prompt_tokens=2)
    assert reply.json()["choices"][0]["text"] == "ef"
    assert reply.json()["usage"]["prompt_tokens"] == 2


@pytest.mark.parametrize(
    "prompt", [[], [""], "", ["a", 5], [[70], 5], [[]], [-1], [10_000_000], ["a", ["b"]], [[1.5]],
               [True], 5, {"a": 1}, None]
)  # fmt: skip
async def test_prompts_that_are_none(client, prompt):
    reply = await client.complete(prompt, max_tokens=1)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"].startswith("prompt")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 5_000_000}, "n"),
        ({"n": 0}, "n"),
        ({"n": -1}, "n"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 3}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"min_p": 2}, "min_p"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"stop": ["x"] * 10_000}, "stop"),
        ({"stop": ["b"], "detokenize": False}, "stop"),
        ({"stop_token_ids": [99_999_999]}, "stop_token_ids"),
        ({"logit_bias": {"99999999": -100}}, "logit_bias"),
        ({"logit_bias": {"-5": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 1000}}, "logit_bias"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"cache_salt": 5}, "cache_salt"),
        ({"priority": 5}, "priority"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"seed": 1 << 80}, "seed"),
        ({"request_id": "x" * 1000}, "request_id"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_bad_values_are_refused_with_their_field(client, fields, param, stream):
    reply = await client.complete(**fields, stream=stream)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param


async def test_prompts_times_n_is_bounded(client):
    assert (await client.complete(["a"] * 4097)).status_code == 400
    reply = await client.complete(["a"] * 100, n=1000)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "n"


async def test_one_bad_prompt_of_a_batch_refuses_it_and_nothing_stays(client):
    reply = await client.complete([[70], [70_000], [71]], max_tokens=50)
    assert reply.status_code == 400
    assert client.engine.num_running == 0


async def test_stop_strings(client):
    body = (await client.complete(max_tokens=50, stop=[" brown"])).json()
    assert body["choices"][0] | {"text": "The quick", "finish_reason": "stop",
                                 "stop_reason": " brown"} == body["choices"][0]  # fmt: skip


async def test_options_reach_the_engine(client):
    await client.complete(cache_salt="salt", seed=5, top_k=3, ignore_eos=True, bad_words=["x"])
    prompt, params, options = client.engine.seen[0]
    assert prompt["prompt"] == "ab"
    assert options["cache_salt"] == "salt"
    assert (params.seed, params.top_k, params.ignore_eos, params.bad_words) == (5, 3, True, ["x"])


async def test_defaults_of_the_model_hold_unless_a_request_says_otherwise(make_client):
    defaults = {"temperature": 0.1, "top_k": 1, "max_new_tokens": 3}
    client = await make_client(override_generation_config=defaults)
    await client.complete()
    await client.complete(temperature=1.0, top_k=-1, max_tokens=2)
    plain, explicit = (params for _, params, _ in client.engine.seen)
    assert (plain.temperature, plain.top_k, plain.max_tokens) == (0.1, 1, 3)
    assert (explicit.temperature, explicit.top_k, explicit.max_tokens) == (1.0, 0, 2)


async def test_cached_tokens_are_reported_if_the_server_does(make_client):
    client = await make_client(server={"enable_prompt_tokens_details": True})
    body = (await client.complete("a" * 40, max_tokens=1)).json()
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 32}


async def test_a_request_that_fails_before_its_first_event(client):
    for stream in (False, True):
        reply = await client.complete(vllm_xargs={"error_at": 0}, stream=stream)
        assert reply.status_code == 500
        assert "NaN logits" in reply.json()["error"]["message"]
        assert "/srv" not in reply.text


async def test_a_stream_that_fails_midway_says_so_and_ends(client):
    reply = await client.complete(vllm_xargs={"error_at": 3}, stream=True, max_tokens=9)
    events = await client.events(reply)
    errors = [event for event in events if "error" in event]
    chunks = [event for event in events if "choices" in event]
    assert len(errors) == 1
    assert errors[0]["error"]["code"] == 500
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 3 + ["error"]


async def test_the_engine_dies_midway(client):
    reply = await client.complete(
        ["a", "b"], vllm_xargs={"die_at": 3}, stream=True, max_tokens=9, n=2
    )
    events = await client.events(reply)
    finished = [
        choice["index"]
        for event in events
        for choice in event.get("choices", [])
        if choice["finish_reason"] == "error"
    ]
    assert sorted(finished) == [0, 1, 2, 3]
    assert (await client.complete()).status_code == 503
    assert (await client.get("/health")).status_code == 503


async def test_a_full_queue_is_503_with_retry_after(make_client):
    client = await make_client(engine={"max_running": 1})
    reply = await client.complete(n=2)
    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "1"


async def test_without_a_tokenizer_token_ids_work_and_text_does_not(make_client):
    client = await make_client(skip_tokenizer_init=True)
    assert (await client.complete("a")).status_code == 400
    body = (
        await client.complete([70], max_tokens=2, return_token_ids=True, detokenize=False)
    ).json()
    assert body["choices"][0]["token_ids"] == [3, 4]
    assert (await client.complete([70], echo=True)).status_code == 400


def first_token(client):
    """The fake engine finds it second likeliest at every place, and the next id likeliest."""
    return client.engine.tokenizer.encode(SCRIPT, add_special_tokens=False)[0]


async def test_the_choices_of_a_beam_search_are_its_best_texts(client):
    token, decode = first_token(client), client.engine.tokenizer.decode
    reply = await client.complete("ab", use_beam_search=True, n=2, max_tokens=3)
    choices = reply.json()["choices"]
    best = [[token + 1] * 3, [token + 1, token + 1, token]]
    assert [choice["text"] for choice in choices] == [decode(tokens) for tokens in best]
    assert [choice["index"] for choice in choices] == [0, 1]
    assert {choice["finish_reason"] for choice in choices} == {"length"}
    assert reply.json()["usage"]["completion_tokens"] == 6
    asked = [params for _, params, _ in client.engine.seen]
    assert [(params.max_tokens, params.logprobs) for params in asked] == [(1, 4)] * 5


@pytest.mark.parametrize("prompt", ["ab", "a" * 100])
@pytest.mark.parametrize(("penalty", "length"), [(0.0, 0), (1.0, 0), (2.0, 4)])
async def test_the_length_penalty_of_beams_counts_output_tokens_alone(
    client, monkeypatch, prompt, penalty, length
):
    """The likeliest token ends the text: nothing scores -0.5, four tokens -4 / 4 ** penalty."""
    ends = frozenset({first_token(client) + 1})
    monkeypatch.setattr(beams, "end_tokens", lambda config, tokenizer: ends)
    reply = await client.complete(
        prompt, use_beam_search=True, max_tokens=4, length_penalty=penalty
    )
    assert reply.json()["choices"][0]["text"] == SCRIPT[0] * length
