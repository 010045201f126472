"""Messages as clients send them -> messages as templates expect them."""

from types import SimpleNamespace

import pytest

from octavo.entrypoints.openai.conversation import ConversationRenderer, checked_messages
from octavo.types.errors import RequestError

USER = {"role": "user", "content": "a"}


class Template:
    """Records what it is asked to render."""

    def __init__(self):
        self.calls = []

    def render(self, messages, /, **kwargs):
        self.calls.append((messages, kwargs))
        return "text"


def conversation(**fields):
    defaults = dict.fromkeys(
        ("tools", "documents", "chat_template", "chat_template_kwargs", "add_generation_prompt",
         "continue_final_message")
    )  # fmt: skip
    return SimpleNamespace(**defaults | {"messages": [USER]} | fields)


def renderer(template=None, tokenizer="tokenizer", defaults=None, trust=False):
    return ConversationRenderer(template, tokenizer, defaults or {}, trust)


def refused(messages):
    with pytest.raises(RequestError) as caught:
        checked_messages(messages)
    return caught.value.param


def test_parts_of_every_text_type_become_text_parts():
    parts = [
        {"type": "text", "text": "a"},
        {"type": "input_text", "text": "b"},
        {"type": "output_text", "text": "c"},
        {"type": "refusal", "refusal": "d"},
        "e",
    ]
    (message,) = checked_messages([{"role": "user", "content": parts}])
    assert [part["text"] for part in message["content"]] == list("abcde")
    assert {part["type"] for part in message["content"]} == {"text"}


def test_other_keys_are_kept():
    messages = [{"role": "user", "content": "a", "name": "x", "own": [1]}]
    assert checked_messages(messages) == messages


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ([{"content": "a"}], "messages[0].role"),
        ([{"role": 1, "content": "a"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([USER, {"role": "user", "content": [5]}], "messages[1].content[0]"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": [], "text": "a"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0]"),
        ([{"role": "assistant", "tool_calls": "x"}], "messages[0].tool_calls"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_its_path(messages, param):
    assert refused(messages) == param


def test_an_assistant_may_have_said_nothing():
    checked_messages([{"role": "assistant", "content": None, "tool_calls": []}])


def test_arguments_of_tool_calls_become_objects():
    call = {"id": "1", "function": {"name": "f", "arguments": '{"x": [1]}'}}
    (message,) = checked_messages([{"role": "assistant", "tool_calls": [call]}])
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": {"x": [1]}}
    assert call["function"]["arguments"] == '{"x": [1]}'


@pytest.mark.parametrize("text", ['{"v": ', "[1]", "5", '"x"', "null", "NaN", "[" * 90_000])
def test_arguments_that_are_no_object_stay_text(text):
    call = {"id": "1", "function": {"name": "f", "arguments": text}}
    (message,) = checked_messages([{"role": "assistant", "tool_calls": [call]}])
    assert message["tool_calls"][0]["function"]["arguments"] == text


@pytest.mark.parametrize(
    ("fields", "begins", "goes_on"),
    [
        ({}, True, False),
        ({"add_generation_prompt": False}, False, False),
        ({"continue_final_message": True}, False, True),
        ({"continue_final_message": True, "add_generation_prompt": False}, False, True),
    ],
)
def test_beginning_an_answer_or_going_on(fields, begins, goes_on):
    template = Template()
    renderer(template).render(conversation(**fields))
    (_, kwargs) = template.calls[0]
    assert kwargs["add_generation_prompt"] is begins
    assert kwargs["continue_final_message"] is goes_on


def test_both_exclude_each_other():
    both = conversation(add_generation_prompt=True, continue_final_message=True)
    with pytest.raises(RequestError, match="exclude"):
        renderer(Template()).render(both)


def test_template_variables_of_a_request_win_over_the_servers():
    template = Template()
    body = conversation(chat_template_kwargs={"a": 1})
    renderer(template, defaults={"a": 0, "b": 2}).render(body)
    assert template.calls[0][1]["a"] == 1
    assert template.calls[0][1]["b"] == 2


@pytest.mark.parametrize("name", ["chat_template", "tokenize", "tools", "messages", "documents"])
def test_reserved_template_variables_are_refused(name):
    with pytest.raises(RequestError, match=name) as caught:
        renderer(Template()).render(conversation(chat_template_kwargs={name: "x"}))
    assert caught.value.param == "chat_template_kwargs"


def test_a_template_of_the_request_needs_trust():
    with pytest.raises(RequestError, match="trust-request-chat-template"):
        renderer(Template()).render(conversation(chat_template="x"))


def test_a_model_without_a_template_says_so():
    with pytest.raises(RequestError, match="--chat-template"):
        renderer(None).render(conversation())
