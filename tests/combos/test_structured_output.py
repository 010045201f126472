"""Grammars among other requests: answers that fit, and the same ones in every way of running."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest

from combos.answers import assert_same
from combos.requests import Work, greedy, ids, seeded
from combos.runs import Mix, run, serve, start
from octavo.types.sampling_params import StructuredOutputsParams
from support.random_schemas import random_schema

GRAMMARS = {
    "regex": StructuredOutputsParams(regex="[a-c]{3}-[0-9]{8}x*"),
    "choice": StructuredOutputsParams(choice=["red", "green", "bl\u00fce"]),
    "ebnf": StructuredOutputsParams(grammar='root ::= ("ab" | "c")+ "."'),
    "lark": StructuredOutputsParams(grammar='start: "<" D ">"\nD: /[0-9]{2,30}/'),
    "object": StructuredOutputsParams(json_object=True),
    "long words": StructuredOutputsParams(
        choice=["constantinople, not istanbul", "constant companions are not instant"]
    ),
    "fields": StructuredOutputsParams(
        json={
            "type": "object",
            "properties": {
                "first_name": {"enum": ["Ada", "Grace"]},
                "occupation": {"type": "string", "maxLength": 5},
                "married": {"type": "boolean"},
            },
            "required": ["first_name", "occupation", "married"],
            "additionalProperties": False,
        },
        disable_any_whitespace=True,
    ),
    "tag": StructuredOutputsParams(
        structural_tag={
            "type": "structural_tag",
            "format": {
                "type": "tag",
                "begin": "<n>",
                "content": {"type": "json_schema", "json_schema": {"type": "integer"}},
                "end": "</n>",
            },
        }
    ),
}


def works() -> list[Work]:
    """Every kind, greedy and drawn, with what else requests may ask for."""
    found = []
    for number, (kind, spec) in enumerate(GRAMMARS.items()):
        prompt = ids(3 + 11 * number, number)
        found += [
            Work(f"{kind}, greedy", prompt, greedy(40, structured_outputs=spec)),
            Work(f"{kind}, drawn", prompt, seeded(number, 40, structured_outputs=spec, n=2)),
            Work(
                f"{kind}, with company",
                prompt,
                seeded(
                    number,
                    40,
                    structured_outputs=spec,
                    temperature=1.5,
                    top_k=20,
                    min_p=0.01,
                    min_tokens=6,
                    frequency_penalty=0.5,
                    logprobs=2,
                ),
            ),
        ]
    return found


@pytest.fixture(scope="module")
def one_by_one(family):
    """The answers of an engine with one step in flight, one request after the other."""
    options = Mix(steps_in_flight=1).options() | {"max_num_seqs": 1, "jump_forward": False}
    return run(family("llama").folder, works(), **options).answers


@pytest.mark.parametrize(
    "mix",
    [
        Mix(),
        Mix(chunk=16),
        Mix(chunk=None, steps_in_flight=1),
        Mix(few_blocks=True),
        Mix(few_blocks=True, steps_in_flight=1, prefix_cache=False),
    ],
    ids=str,
)
def test_answers_do_not_depend_on_how_they_are_computed(family, one_by_one, mix):
    plain = family("llama").works
    both = [work for pair in zip(works(), plain, strict=False) for work in pair]
    result = run(family("llama").folder, both, **mix.options())
    if mix.few_blocks:
        assert result.num_preemptions
    expected = dict(zip([work.name for work in plain], family("llama").expected, strict=True))
    expected |= {answer.name: answer for answer in one_by_one}
    assert_same([expected[work.name] for work in both], result.answers, str(mix))


def test_an_engine_in_its_own_process(family, one_by_one):
    result = run(family("llama").folder, works(), own_process=True, **Mix().options())
    assert_same(one_by_one, result.answers, "a core in its own process")


OPEN = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "more": {"anyOf": [{"type": "null"}, {"$ref": "#"}]},
    },
    "required": ["name", "tags", "more"],
    "additionalProperties": False,
}


def finishing_works() -> list[Work]:
    """Requests whose texts would go on for ever, each with its number of tokens."""
    return [
        Work(
            f"in {tokens} tokens",
            ids(3 + tokens % 30, tokens),
            seeded(
                tokens,
                tokens,
                n=2,
                temperature=1.5,
                structured_outputs=StructuredOutputsParams(json=OPEN, finish_within_limit=True),
                **({"logprobs": 1, "frequency_penalty": 0.5} if tokens % 3 == 0 else {}),
            ),
        )
        for tokens in range(38, 80, 3)
    ]


def test_texts_that_are_to_finish_do_in_every_way_of_running(family):
    llama = family("llama")
    alone = Mix(steps_in_flight=1).options() | {"max_num_seqs": 1, "jump_forward": False}
    expected = run(llama.folder, finishing_works(), **alone).answers
    for answer in expected:
        assert answer.error is None
        for sequence in answer.sequences:
            assert sequence.finish_reason == "stop"
            jsonschema.validate(json.loads(sequence.text), OPEN)
    crowded = run(llama.folder, finishing_works(), **Mix(few_blocks=True).options())
    assert crowded.num_preemptions
    assert_same(expected, crowded.answers, "few blocks")


def test_jumps_save_steps(family):
    llm = start(family("llama").folder, **Mix().options())
    try:
        serve(llm, works())
        counters = {
            metric.name: metric.value for metric in llm.get_metrics() if "forced" in metric.name
        }
    finally:
        llm.shutdown()
    assert counters["octavo:structured_output_forced_tokens"] > 50


@pytest.mark.parametrize(
    "count", [100, pytest.param(1000, marks=pytest.mark.slow)], ids=["100", "1000"]
)
def test_hot_answers_fit_random_schemas(family, count):
    schemas = [random_schema(random.Random(number)) for number in range(count)]
    requests = [
        Work(
            f"schema {number}",
            ids(2 + number % 30, number),
            seeded(
                number,
                None,
                temperature=1.5,
                structured_outputs=StructuredOutputsParams(json=schema),
            ),
        )
        for number, schema in enumerate(schemas)
    ]
    options = Mix().options() | {"max_model_len": 512}
    answers = run(family("llama").folder, requests, **options).answers
    for schema, answer in zip(schemas, answers, strict=True):
        (sequence,) = answer.sequences
        assert answer.error is None
        assert sequence.finish_reason == "stop", (schema, sequence.text)
        jsonschema.validate(
            json.loads(sequence.text),
            schema,
            jsonschema.Draft202012Validator,
            format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER,
        )
