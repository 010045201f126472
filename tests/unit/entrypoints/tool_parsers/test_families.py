"""Every family's own syntax, parsed as a whole and cut in every way that matters."""

import itertools
import re

import pytest

from octavo.entrypoints.tool_parsers.interface import TOOL_PARSERS
from support.parser_cases import CASES, FAMILIES
from support.parsers import TEXT_ONLY, parse

ALIASES = {"ernie45", "granite4", "llama4_json", "qwen3_xml", "hunyuan_a13b"}
IDS = [f"{case.family}-{i}" for i, case in enumerate(CASES)]


def test_every_family_has_a_case():
    own = {name for name in TOOL_PARSERS if not name.startswith("mine_")}  # plug-ins of other tests
    assert own - ALIASES == set(FAMILIES)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_what_an_answer_means(case):
    parsed = parse(case.text, case.family)
    assert parsed.calls == list(case.calls)
    assert parsed.answer.content == case.content
    assert parsed.finish_reason == ("tool_calls" if case.calls else "stop")


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_every_cut_in_two_and_every_character_alone_give_the_same(case):
    whole = parse(case.text, case.family)
    for cuts in ([i] for i in range(1, len(case.text))):
        assert parse(case.text, case.family, cuts) == whole
    assert parse(case.text, case.family, range(1, len(case.text))) == whole


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_an_answer_that_is_cut_off_anywhere_shows_what_was_written(case):
    whole = parse(case.text, case.family)
    for end in range(len(case.text)):
        text = case.text[:end]
        parsed = parse(text, case.family, truncated=True)
        assert parsed == parse(text, case.family, range(1, end), truncated=True)
        assert parsed.finish_reason == "length"
        assert [name for name, _ in parsed.calls] == [
            name for name, _ in whole.calls[: len(parsed.calls)]
        ]
        assert parsed.calls[:-1] == whole.calls[: max(len(parsed.calls) - 1, 0)]


@pytest.mark.parametrize("family", FAMILIES)
def test_calls_have_ids_indexes_and_parts_in_order(family):
    for case in (case for case in CASES if case.family == family):
        parsed = parse(case.text, family, range(1, len(case.text)))
        assert len(set(parsed.ids)) == len(parsed.ids) == len(case.calls)
        kinds = [(type(event).__name__, event.index) for event in parsed.events
                 if hasattr(event, "index")]  # fmt: skip
        for index, group in itertools.groupby(kinds, key=lambda kind: kind[1]):
            names = [name for name, _ in group]
            assert names[0] == "CallStart"
            assert names[-1] == "CallEnd"
            assert set(names[1:-1]) == {"CallArguments"}
            assert index < len(case.calls)
        assert [index for name, index in kinds if name == "CallStart"] == [*range(len(case.calls))]


def test_ids_that_models_write_are_kept():
    kimi = next(case for case in CASES if case.family == "kimi_k2")
    assert parse(kimi.text, "kimi_k2").ids == ["functions.f:0", "functions.g:1"]
    assert parse("[TOOL_CALLS]g[CALL_ID]abcdefghi[ARGS]{}", "mistral").ids == ["abcdefghi"]
    assert parse("[TOOL_CALLS]g[CALL_ID]abc[ARGS]{}", "mistral").ids == ["id0"]


def test_an_id_that_is_used_twice_is_replaced():
    call = "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    assert parse(call + call, "kimi_k2").ids == ["functions.f:0", "id1"]


def test_ids_of_the_history_get_the_form_that_the_model_knows():
    kimi, mistral, hermes = (
        TOOL_PARSERS.get(name)(TEXT_ONLY).history_id for name in ("kimi_k2", "mistral", "hermes")
    )
    assert kimi("call_1", "f", 3) == "functions.f:3"
    assert kimi("functions.f:7", "f", 3) == "functions.f:7"
    assert mistral("abcdefghi", "f", 0) == "abcdefghi"
    short = mistral("call_1", "f", 0)
    assert re.fullmatch(r"[A-Za-z0-9]{9}", short)
    assert mistral("call_1", "g", 5) == short != mistral("call_2", "f", 0)
    assert hermes("call_1", "f", 0) == "call_1"


def test_ids_of_an_answer_have_the_form_that_the_model_knows():
    for name, form in (("mistral", r"[A-Za-z0-9]{9}"), ("hermes", r"call_[A-Za-z0-9]{24}")):
        new_id = TOOL_PARSERS.get(name)(TEXT_ONLY).new_id
        assert re.fullmatch(form, new_id("f", 0))
        assert new_id("f", 0) != new_id("f", 0)


def test_calls_beyond_the_limit_are_dropped():
    for case in (case for case in CASES if len(case.calls) > 1):
        parsed = parse(case.text, case.family, most_calls=1)
        assert parsed.calls == list(case.calls[:1])
        assert parsed == parse(case.text, case.family, range(1, len(case.text)), most_calls=1)
