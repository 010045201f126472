"""Reasoning: where it begins, where it ends, and what of it is the tags'."""

import itertools

import pytest

from octavo.entrypoints.reasoning.interface import REASONING_PARSERS, ReasoningParser
from octavo.entrypoints.tool_parsers.events import ReasoningText
from support.parsers import TEXT_ONLY, parse

TAGS = {
    name: (syntax.starts[0], syntax.ends[0])
    for name in REASONING_PARSERS
    if not (syntax := REASONING_PARSERS.get(name)).harmony
}


def split(text, name, cuts=(), family=None, **options):
    answer = parse(text, family, cuts, reasoning=name, **options).answer
    return answer.reasoning, answer.content


def every_way(text):
    """No cut, every cut in two, every cut in three, every character alone."""
    yield ()
    yield range(1, len(text))
    for count in (1, 2):
        yield from itertools.combinations(range(1, len(text)), count)


@pytest.mark.parametrize("name", sorted(TAGS))
def test_tags_are_found_however_they_are_cut(name):
    start, end = TAGS[name]
    text = f"{start}a{end}b"
    cuts = every_way(text) if len(text) < 24 else [(), range(1, len(text))]
    for cut in cuts:
        assert split(text, name, cut) == ("a", "b")


@pytest.mark.parametrize("name", sorted(TAGS))
def test_a_start_that_the_prompt_has_written(name):
    start, end = TAGS[name]
    text = f"a{end}b"
    for cut in ((), range(1, len(text))):
        assert split(text, name, cut, inside=True) == ("a", "b")
        assert split(start + text, name, cut, inside=True) == ("a", "b")


def test_chunks_that_are_a_tag_each():
    parts = ["<mm:think>", "x", "</mm:think>", "y"]
    edges = list(itertools.accumulate(map(len, parts)))[:-1]
    assert split("".join(parts), "minimax_m3", edges) == ("x", "y")


def test_only_what_may_be_a_tag_is_held_back():
    events = parse("<think>ab</x", None, [7, 8, 9, 11], reasoning="qwen3").events
    assert [event.text for event in events] == ["a", "b", "</x"]


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>\na\n\n b\n</think>\n\nc\n", "a\n\n b", "c\n"),
        ("\n<think></think>c", "", "c"),
        ("<think>\n\n</think>\n\nc", "", "c"),
        ("no thoughts", "", "no thoughts"),
        ("  blanks first", "", "  blanks first"),
        ("x <think>later</think>", "", "x <think>later</think>"),
        ("<think>never ends\n", "never ends\n", ""),
        ("<thin", "", "<thin"),
        ("<think>a</think>b</think>c", "a", "b</think>c"),
    ],
)
def test_what_belongs_to_whom(text, reasoning, content):
    for cut in ((), range(1, len(text))):
        assert split(text, "qwen3", cut) == (reasoning, content)


def test_the_prompt_may_keep_the_model_from_reasoning():
    assert split("<think>a</think>b", "qwen3", inside=False) == ("", "<think>a</think>b")


def test_granite_speaks_in_sentences():
    text = "Here's my thought process: a. Here is my response: b"
    for cut in ((), range(1, len(text))):
        assert split(text, "granite", cut) == (" a. ", " b")


@pytest.mark.parametrize(
    ("prompt", "continued", "inside"),
    [
        ("<|im_start|>assistant\n", None, None),
        ("<|im_start|>assistant\n<think>\n", None, True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", None, False),
        ("user: what does <think> do?\nassistant\n", None, None),
        ("...assistant\n<think>\nI", "<think>\nI", True),
        ("...assistant\nSo", "<think>a</think>So", False),
        ("...assistant\nSo", "So", False),
        ("...assistant\n<think>\n", "", True),
    ],
)
def test_where_an_answer_begins_is_told_by_the_prompt(prompt, continued, inside):
    parser = ReasoningParser(REASONING_PARSERS.get("qwen3"), TEXT_ONLY)
    assert parser.begins_inside(prompt, continued) is inside


def test_calls_follow_reasoning():
    text = '<think>\nhm\n</think>\n\n<tool_call>{"name": "g", "arguments": {}}</tool_call>'
    parsed = parse(text, "hermes", range(1, len(text)), reasoning="qwen3")
    assert (parsed.answer.reasoning, parsed.answer.content) == ("hm", "")
    assert parsed.calls == [("g", "{}")]


def test_a_call_within_reasoning_is_a_thought_where_text_tells_calls():
    text = '<think>try <tool_call>{"name": "g", "arguments": {}}</tool_call></think>no'
    parsed = parse(text, "hermes", range(1, len(text)), reasoning="qwen3")
    assert parsed.calls == []
    assert parsed.answer.content == "no"


def test_several_thoughts_of_harmony_are_lines_of_their_own():
    text = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b"
    events = parse(text, None, reasoning="openai_gptoss").events
    assert "".join(event.text for event in events if isinstance(event, ReasoningText)) == "a\nb"
