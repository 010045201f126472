"""Special tokens as marks: told by their ids, hidden from clients, never mistaken for text."""

import itertools
import random

import pytest

from octavo.engine.detokenizer import IncrementalDetokenizer
from octavo.entrypoints.tool_parsers.answer_parsers import AnswerParsers, Reading
from octavo.entrypoints.tool_parsers.events import ParsedAnswer
from octavo.entrypoints.tool_parsers.marks import Marks
from octavo.types.request import EngineCoreRequest
from octavo.types.sampling_params import SamplingParams
from support.parser_cases import CASES
from support.parsers import TOOLS
from support.real_templates import byte_tokenizer, real_tokenizer

SPECIALS = {
    "openai": ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|constrain|>"],
    "mistral": ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"],
    "kimi_k2": ["<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_end|>"],
    "gemma4": ["<|tool_call>", "<tool_call|>", '<|"|>'],
    "llama3_json": ["<|python_tag|>"],
}
SPECIAL_CASES = [case for case in CASES if case.family in SPECIALS]


def read(
    tokenizer, family, ids, groups, *, skip=True, stop=None, reasoning=None, calls=True, **how
):
    """What comes out of engine and parser for token ids that arrive in groups."""
    parsers = AnswerParsers(tokenizer, family, reasoning)
    params = SamplingParams(skip_special_tokens=not parsers.needs_special_tokens, stop=stop)
    request = EngineCoreRequest("r", [0], 1, params, 0, 0.0, len(ids))
    detokenizer = IncrementalDetokenizer(tokenizer, request)
    reading = Reading("", [0], calls, TOOLS, skip_special_tokens=skip, **how)
    parser = parsers.open(reading)
    events, shown = [], 0
    for group in groups:
        stopped = detokenizer.update(list(group), False)
        last = stopped is not None
        text = detokenizer.get_next_output_text(last, True)
        news = detokenizer.output_token_ids[shown:]
        shown = detokenizer.num_output_tokens
        events += parser.feed(text, news)
        if last:
            break
    events += parser.feed(detokenizer.get_next_output_text(True, True), [])
    events += parser.finish()
    return ParsedAnswer.of(events)


def groupings(ids):
    yield [[i] for i in ids]
    yield [ids]
    random.seed(len(ids))
    for _ in range(3):
        cuts = sorted(random.choices(range(len(ids)), k=4))
        yield [ids[a:b] for a, b in itertools.pairwise([0, *cuts, len(ids)])]


@pytest.mark.parametrize("case", SPECIAL_CASES, ids=lambda case: case.family)
def test_marks_that_are_tokens_are_read_by_their_ids(case):
    tokenizer = byte_tokenizer([*SPECIALS[case.family], "<eos>"])
    ids = tokenizer.encode(case.text)
    for groups in groupings(ids):
        answer = read(tokenizer, case.family, ids, groups)
        assert [(call.name, call.arguments) for call in answer.calls] == list(case.calls)
        assert answer.content == case.content


@pytest.mark.parametrize("case", SPECIAL_CASES, ids=lambda case: case.family)
def test_text_that_only_spells_a_special_token_is_text(case):
    tokenizer = byte_tokenizer([*SPECIALS[case.family], "<eos>"])
    spelled = f"x {SPECIALS[case.family][0]}f{{}}"
    ids = [token_id for letter in spelled for token_id in tokenizer.encode(letter)]
    answer = read(tokenizer, case.family, ids, [ids])
    assert answer.content == spelled
    assert not answer.calls


def test_special_tokens_that_are_no_marks_are_hidden_unless_wanted():
    tokenizer = byte_tokenizer(["[TOOL_CALLS]", "<pad>"])
    ids = tokenizer.encode("a<pad>é[TOOL_CALLS]g{}")
    for groups in groupings(ids):
        assert read(tokenizer, "mistral", ids, groups).content == "aé"
        assert read(tokenizer, "mistral", ids, groups, skip=False).content == "a<pad>é"


def test_marks_of_a_call_that_is_none_are_shown():
    tokenizer = byte_tokenizer(["[TOOL_CALLS]", "<pad>"])
    ids = tokenizer.encode("a[TOOL_CALLS] nothing<pad>")
    for groups in groupings(ids):
        assert read(tokenizer, "mistral", ids, groups).content == "a[TOOL_CALLS] nothing"


def test_a_stop_string_ends_the_text_before_it_and_before_the_marks_after_it():
    tokenizer = byte_tokenizer(["[TOOL_CALLS]"])
    ids = tokenizer.encode("one STOP two[TOOL_CALLS]g{}")
    for groups in groupings(ids):
        answer = read(tokenizer, "mistral", ids, groups, stop=["STOP"])
        assert answer.content == "one "
        assert not answer.calls


def test_a_broken_character_before_a_mark_is_a_replacement_character():
    tokenizer = byte_tokenizer(["[TOOL_CALLS]"])
    half = tokenizer.encode("é")[:1]
    ids = [*half, *tokenizer.encode("[TOOL_CALLS]g{}")]
    for groups in groupings(ids):
        answer = read(tokenizer, "mistral", ids, groups)
        assert answer.content == "\ufffd"
        assert [call.name for call in answer.calls] == ["g"]


def test_a_special_token_ends_a_string_that_was_left_open():
    tokenizer = byte_tokenizer(SPECIALS["mistral"])
    ids = tokenizer.encode('[TOOL_CALLS]g[ARGS]{"a": "b[TOOL_CALLS]f[ARGS]{}')
    for groups in groupings(ids):
        answer = read(tokenizer, "mistral", ids, groups)
        assert [(call.name, call.arguments) for call in answer.calls] == [
            ("g", '{"a": "b'),
            ("f", "{}"),
        ]


def test_reasoning_of_gpt_oss_without_tools():
    tokenizer = real_tokenizer("gptoss")
    text = (
        "<|channel|>analysis<|message|>hm\n<|end|><|start|>assistant"
        "<|channel|>final<|message|>Hi\n\nyou <|call|>"
    )
    ids = tokenizer.encode(text)
    for groups in groupings(ids):
        answer = read(tokenizer, None, ids, groups, reasoning="openai_gptoss", calls=False)
        assert (answer.reasoning, answer.content) == ("hm", "Hi\n\nyou ")


def test_marks_without_a_tokenizer_are_text():
    marks = Marks(None)
    assert marks("[TOOL_CALLS]") == "[TOOL_CALLS]"
    assert marks.characters == {}


def test_a_mark_may_hold_special_tokens_and_text():
    marks = Marks(byte_tokenizer(["<|channel>", "<|channel>longer"]))
    spelled = marks("<|channel>thought\n")
    assert spelled[1:] == "thought\n"
    assert marks.spelled(spelled) == "<|channel>thought\n"
    assert len(marks("<|channel>longer")) == 1


def test_under_a_grammar_marks_may_be_spelled():
    tokenizer = byte_tokenizer(SPECIALS["mistral"])
    by_token = tokenizer.encode('[TOOL_CALLS]g[ARGS]{"a": 1}')
    spelled = [i for letter in '[TOOL_CALLS]g[ARGS]{"a": 1}' for i in tokenizer.encode(letter)]
    for ids in (by_token, spelled):
        answer = read(tokenizer, "mistral", ids, [ids], spelled=True)
        assert [(call.name, call.arguments) for call in answer.calls] == [("g", '{"a": 1}')]
    assert not read(tokenizer, "mistral", spelled, [spelled]).calls


def test_calls_that_were_forced_as_json():
    tokenizer = byte_tokenizer(SPECIALS["mistral"])
    ids = tokenizer.encode('[{"name": "g", "arguments": {"a": 1}}]')
    answer = read(tokenizer, "mistral", ids, [ids], forced_json=True)
    assert [(call.name, call.arguments) for call in answer.calls] == [("g", '{"a": 1}')]
