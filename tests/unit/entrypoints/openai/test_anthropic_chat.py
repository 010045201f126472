"""Anthropic's messages as those of the chat endpoint, and what is refused on the way."""

import pytest

from octavo.entrypoints.openai.anthropic_chat import chat_fields
from octavo.entrypoints.openai.schema.messages import CountTokensRequest
from octavo.types.errors import RequestError

USER = {"role": "user", "content": "a"}


def fields_of(*messages, **fields):
    return chat_fields(CountTokensRequest(messages=list(messages), **fields))


def test_calls_and_reasoning_of_the_assistant():
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "I will look."},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"city": "東京"}},
    ]
    message = fields_of(USER, {"role": "assistant", "content": blocks})["messages"][1]
    assert (message["reasoning"], message["content"]) == ("hm", "I will look.")
    (call,) = message["tool_calls"]
    assert call["function"] == {"name": "f", "arguments": '{"city":"東京"}'}


def test_results_come_before_the_words_beside_them():
    blocks = [
        {"type": "text", "text": "so?"},
        {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "1"}]},
        {"type": "tool_result", "tool_use_id": "d", "is_error": True, "content": "away"},
        {"type": "tool_result", "tool_use_id": "e"},
    ]
    messages = fields_of({"role": "user", "content": blocks})["messages"]
    assert [(m["role"], m["content"]) for m in messages] == [
        ("tool", "1"),
        ("tool", "Error: away"),
        ("tool", ""),
        ("user", "so?"),
    ]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        (
            {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
            {
                "tool_choice": {"type": "function", "function": {"name": "f"}},
                "parallel_tool_calls": False,
            },
        ),
    ],
)
def test_choices_of_tools(choice, expected):
    fields = fields_of(USER, tool_choice=choice)
    assert {name: fields[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "tool", "content": "a"}, "messages[0].role"),
        ({"role": ["user"], "content": "a"}, "messages[0].role"),
        ({"role": "user", "content": None}, "messages[0].content"),
        ({"role": "user", "content": ["a"]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "image"}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "assistant", "content": [{"type": "redacted_thinking"}]},
         "messages[0].content[0]"),
    ],
)  # fmt: skip
def test_wrong_messages_are_named(message, param):
    with pytest.raises(RequestError) as caught:
        fields_of(message)
    assert caught.value.param == param


@pytest.mark.parametrize("choice", [{}, {"type": "x"}, {"type": ["auto"]}, {"type": "tool"}])
def test_wrong_choices_are_refused(choice):
    with pytest.raises(RequestError, match="tool_choice"):
        fields_of(USER, tool_choice=choice)


def test_tools_of_anthropics_own_are_refused():
    with pytest.raises(RequestError) as caught:
        fields_of(USER, tools=[{"type": "bash_20250124", "name": "bash"}])
    assert caught.value.param == "tools[0].type"
