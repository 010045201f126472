"""Any chunking of any answer gives, byte for byte, what the whole answer gives."""

import itertools
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.entrypoints.tool_parsers.events import CallArguments, CallStart
from support.parser_cases import CASES, FAMILIES
from support.parsers import make_parser, parse

EXAMPLES = {family: [case.text for case in CASES if case.family == family] for family in FAMILIES}
PIECE = re.compile(r"<[^<>\s]*>|\[[A-Z_]+\]|<\w+=\"?|\"\w+\"|\w+\(|call:\w+\{|\w+|\s+|[^\w\s]")
REASONING = st.sampled_from(["qwen3", "mistral", "openai_gptoss", None])
ODD = st.sampled_from(
    ['"', "\\", "{", "}", "[", "]", "<", ">", "'", "`", "```", "\\u00e9", "\\ud83d", "é", "👩‍👧",
     "\n", "\r\n", " ", "\x00", "\u2028", "<think>", "</think>", ",", ";", ":", "null", "1e3"]
)  # fmt: skip
WORD = st.integers(0, 9999).map(lambda number: f" W{number}x ")


def fragments(family):
    """Whole answers, halves of them, and what they are made of."""
    found = set()
    for text in EXAMPLES[family]:
        found.update(PIECE.findall(text))
        found.update((text, text[: len(text) // 2], text[len(text) // 2 :]))
    return st.sampled_from(sorted(found))


@st.composite
def answers(draw):
    """(family, text, where to cut it, how to read it)."""
    family = draw(st.sampled_from(FAMILIES))
    part = st.one_of(fragments(family), fragments(family), ODD, WORD, st.text(max_size=4))
    text = "".join(draw(st.lists(part, max_size=12)))
    cuts = draw(st.lists(st.integers(0, len(text)), max_size=8).map(sorted))
    options = {
        "reasoning": draw(REASONING),
        "inside": draw(st.sampled_from([None, True, False])),
        "truncated": draw(st.booleans()),
        "most_calls": draw(st.sampled_from([None, None, 1])),
    }
    return family, text, cuts, options


def check(answer):
    family, text, cuts, options = answer
    whole = parse(text, family, **options)
    assert parse(text, family, cuts, **options) == whole
    assert parse(text, family, range(1, len(text)), **options) == whole
    if not whole.answer.calls and options["reasoning"] is None and family != "openai":
        assert whole.answer.content == text
    assert all(call.name for call in whole.answer.calls)


@given(answers())
@settings(max_examples=250, deadline=None)
def test_the_chunking_changes_nothing(answer):
    check(answer)


@pytest.mark.slow
@given(answers())
@settings(max_examples=10_000, deadline=None)
def test_the_chunking_changes_nothing_at_length(answer):
    check(answer)


@given(answers())
@settings(max_examples=100, deadline=None)
def test_words_are_never_lost(answer):
    family, text, _, options = answer
    options["most_calls"] = None
    answer = parse(text, family, **options).answer
    texts = [answer.reasoning, answer.content]
    texts += [part for call in answer.calls for part in (call.id, call.name, call.arguments)]
    shown = " ".join(texts)
    if answer.calls and family not in ("glm45", "glm47", "qwen3_coder", "seed_oss", "minimax_m2"):
        return  # further keys of a JSON call, and what stands between its marks, are its syntax
    for word in re.findall(r"W\d+x", text):
        assert word in shown


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
ENVELOPES = {
    "hermes": '<tool_call>\n{"name": "f", "arguments": %s}\n</tool_call>',
    "llama3_json": '{"name": "f", "parameters": %s}',
    "mistral": "[TOOL_CALLS]f[ARGS]%s",
    "granite": '<|tool_call|>[{"name": "f", "arguments": %s}]',
    "phi4_mini_json": 'functools[{"name": "f", "arguments": %s}]',
    "kimi_k2": "<|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>%s<|tool_call_end|>",
    "openai": "<|channel|>commentary to=functions.f <|constrain|>json<|message|>%s<|call|>",
}


@given(
    st.sampled_from(sorted(ENVELOPES)),
    st.dictionaries(st.text(), JSON_VALUES, max_size=4),
    st.booleans(),
    st.sampled_from([None, 1, 2]),
    st.lists(st.integers(0, 400), max_size=6),
)
@settings(max_examples=100, deadline=None)
def test_json_arguments_come_out_as_they_were_written(family, value, ascii_only, indent, cuts):
    written = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    text = ENVELOPES[family] % written
    cuts = sorted(cut for cut in cuts if cut < len(text))
    assert parse(text, family, cuts).calls == [("f", written)]


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), JSON_VALUES, max_size=4))
@settings(max_examples=100, deadline=None)
def test_python_arguments_mean_what_they_did(value):
    text = "[f(" + ", ".join(f"{key}={item!r}" for key, item in value.items()) + ")]"
    ((name, arguments),) = parse(text, "pythonic", range(1, len(text), 3)).calls
    assert name == "f"
    assert json.loads(arguments) == json.loads(json.dumps(value))


@given(st.text(), st.lists(st.integers(0, 200), max_size=6))
@settings(max_examples=100, deadline=None)
def test_text_values_between_tags_come_out_as_they_were_written(value, cuts):
    text = f"<tool_call>\n<function=f>\n<parameter=s>\n{value}\n</parameter>\n</function>"
    cuts = sorted(cut for cut in cuts if cut < len(text))
    ((_, arguments),) = parse(text, "qwen3_coder", cuts).calls
    assert json.loads(arguments) == {"s": value}


def test_two_calls_in_one_piece_make_two_calls_and_no_empty_delta():
    for case in (case for case in CASES if len(case.calls) == 2):
        for cut in range(1, len(case.text)):
            events = parse(case.text, case.family, [cut]).events
            starts = [event.index for event in events if isinstance(event, CallStart)]
            assert starts == [0, 1]
            assert all(event.text for event in events if isinstance(event, CallArguments))


def test_streams_share_nothing():
    cases = list(itertools.islice(itertools.cycle(CASES), 64))
    parsers = [make_parser(case.family) for case in cases]
    events = [[] for _ in cases]
    for at in range(max(len(case.text) for case in cases)):
        for number, case in enumerate(cases):
            if at < len(case.text):
                events[number] += parsers[number].feed(case.text[at])
    for number, case in enumerate(cases):
        events[number] += parsers[number].finish()
        alone = parse(case.text, case.family, range(1, len(case.text)))
        assert events[number] == alone.events
