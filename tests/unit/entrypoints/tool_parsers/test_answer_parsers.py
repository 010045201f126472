"""AnswerParsers: what may come before the text that a grammar is for."""

from __future__ import annotations

import pytest

from octavo.entrypoints.tool_parsers.answer_parsers import AnswerParsers, Reading


@pytest.mark.parametrize(
    ("parser", "prompt", "expected"),
    [
        (None, "", None),
        ("qwen3", "...<think>\n\n</think>\n\n", None),
        ("qwen3", "...assistant\n", (["<think>"], ["</think>"], None)),
        ("qwen3", "...<think>\n", (["<think>"], ["</think>"], True)),
        ("openai_gptoss", "...", ([], ["<|channel|>final<|message|>"], True)),
    ],
)
def test_reasoning_before_a_grammar(parser, prompt, expected):
    parsers = AnswerParsers(None, None, parser)
    marks = parsers.reasoning_marks(Reading(prompt, []))
    if expected is None:
        assert marks is None
    else:
        assert (marks.starts, marks.ends, marks.inside) == expected


def test_a_bare_list_of_calls_stands_in_no_channel():
    parsers = AnswerParsers(None, "openai", "openai_gptoss")
    assert parsers.reasoning_marks(Reading("", [], calls=True, forced_json=True)) is None
