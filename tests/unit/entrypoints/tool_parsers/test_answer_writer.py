"""AnswerWriter: events in order, and which blanks are content."""

from octavo.entrypoints.tool_parsers.answer_writer import AnswerWriter
from octavo.entrypoints.tool_parsers.events import (
    CallArguments,
    CallEnd,
    CallStart,
    ContentText,
    ParsedAnswer,
    ReasoningText,
)


def writer(**options):
    return AnswerWriter(new_id=lambda name, number: f"{name}-{number}", **options)


def test_runs_of_one_kind_are_one_event():
    answer = writer()
    for text in ("a", "b"):
        answer.reasoning(text)
    for text in ("c", "d"):
        answer.content(text)
    answer.start_call("f")
    for text in ("{", "}"):
        answer.arguments(text)
    answer.end_call()
    assert answer.take() == [
        ReasoningText("ab"),
        ContentText("cd"),
        CallStart(0, "f-0", "f"),
        CallArguments(0, "{}"),
        CallEnd(0),
    ]
    assert answer.take() == []


def content_of(*texts, call_after=None, **options):
    answer = writer(**options)
    for number, text in enumerate(texts):
        answer.content(text)
        if number == call_after:
            answer.start_call("f")
            answer.end_call()
    answer.finish()
    return ParsedAnswer.of(answer.take()).content


def test_blanks_around_calls_are_syntax_and_others_are_not():
    assert content_of(" a \n", " b\n") == " a \n b\n"
    assert content_of("a \n", "\n b", call_after=0) == "a\n b"
    assert content_of(" \n", "\n b\n", call_after=0) == "b\n"
    assert content_of("a", " \n", call_after=0) == "a"


def test_blanks_are_held_only_where_a_call_may_follow():
    answer = writer(hold_blanks=False)
    answer.content("a ")
    assert answer.take() == [ContentText("a ")]
    held = writer()
    held.content("a ")
    assert held.take() == [ContentText("a")]
    held.content("b")
    assert held.take() == [ContentText(" b")]


def test_a_call_that_is_open_ends_with_the_answer():
    answer = writer()
    answer.start_call("f")
    answer.finish()
    assert answer.take() == [CallStart(0, "f-0", "f"), CallEnd(0)]


def test_calls_beyond_the_most_leave_no_trace():
    answer = writer(most_calls=1)
    for name in "fg":
        answer.start_call(name, "id")
        answer.arguments("{}")
        answer.end_call()
    assert [event for event in answer.take() if isinstance(event, CallStart)] == [
        CallStart(0, "id", "f")
    ]
    assert (answer.num_calls, answer.num_started) == (1, 2)


def test_characters_that_stand_for_tokens_are_spelled():
    answer = writer(spellings={"\ud800": "<|x|>"})
    answer.content("é\ud800")
    answer.reasoning("\ud800")
    assert answer.take() == [ContentText("é<|x|>"), ReasoningText("<|x|>")]
