"""Messages as clients send them -> messages as templates expect them."""

from types import SimpleNamespace

import pytest

from octavo.entrypoints.openai.conversation import ConversationRenderer, checked_messages
from octavo.types.errors import RequestError

USER = {"role": "user", "content": "a"}


class Template:
    """Records what it is asked to render."""

    def __init__(self, variables=()):
        self.calls = []
        self.variables = frozenset(variables)

    def render(self, messages, /, **kwargs):
        self.calls.append((messages, kwargs))
        return "text"


def conversation(**fields):
    defaults = dict.fromkeys(
        ("tools", "documents", "chat_template", "chat_template_kwargs", "add_generation_prompt",
         "continue_final_message")
    )  # fmt: skip
    return SimpleNamespace(**defaults | {"messages": [USER]} | fields)


def renderer(template=None, tokenizer="tokenizer", defaults=None, trust=False, **options):
    return ConversationRenderer(template, tokenizer, defaults or {}, trust, **options)


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


def test_tool_calls_stay_as_they_were_sent():
    call = {"id": "1", "function": {"name": "f", "arguments": '{"x": '}}
    (message,) = checked_messages([{"role": "assistant", "tool_calls": [call]}])
    assert message["tool_calls"] == [call]


def test_a_tool_may_have_nothing_to_say():
    (message,) = checked_messages([{"role": "tool", "tool_call_id": "1", "content": None}])
    assert message["content"] == ""


def test_thoughts_among_the_parts_are_reasoning():
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}]
    (message,) = checked_messages([{"role": "assistant", "content": parts}])
    assert message["reasoning_content"] == "hm"
    assert message["content"] == [{"type": "text", "text": "a"}]
    (alone,) = checked_messages([{"role": "assistant", "content": parts[:1]}])
    assert alone["content"] is None


def test_calls_and_their_results_get_the_ids_that_the_model_knows():
    template = Template()
    seen = []

    def history_id(call_id, name, number):
        seen.append((call_id, name, number))
        return f"{name}:{number}"

    calls = [{"id": i, "function": {"name": n, "arguments": "{}"}} for i, n in ("xf", "yg")]
    messages = [
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "y", "content": "1"},
        {"role": "assistant", "tool_calls": [{"id": "z", "function": {"name": "h"}}]},
        {"role": "tool", "tool_call_id": "stray", "content": "2"},
    ]
    rendered = renderer(template, history_id=history_id)
    rendered.render(conversation(messages=messages))
    first, result, last, stray = template.calls[0][0]
    assert [call["id"] for call in first["tool_calls"]] == ["f:0", "g:1"]
    assert result["tool_call_id"] == "g:1"
    assert last["tool_calls"][0]["id"] == "h:2"
    assert stray["tool_call_id"] == ":3"
    assert messages[0]["tool_calls"][0]["id"] == "x"


def test_tools_are_hidden_only_where_none_may_be_called_and_the_server_says_so():
    for hide, choice, shown in ((True, "none", False), (True, "auto", True), (False, "none", True)):
        template = Template()
        body = conversation(tools=[{}], tool_choice=choice)
        renderer(template, hide_unused_tools=hide).render(body)
        assert (template.calls[0][1]["tools"] is not None) is shown


@pytest.mark.parametrize(
    ("variables", "effort", "passed"),
    [
        ({"reasoning_effort"}, "high", {"reasoning_effort": "high"}),
        ({"enable_thinking"}, "none", {"enable_thinking": False}),
        ({"thinking"}, "low", {"thinking": True}),
        (set(), "none", {}),
    ],
)
def test_reasoning_effort_speaks_the_templates_words(variables, effort, passed):
    template = Template(variables)
    renderer(template).render(conversation(reasoning_effort=effort))
    given = template.calls[0][1]
    names = ("reasoning_effort", "enable_thinking", "thinking")
    assert {name: given[name] for name in names if name in given} == passed


def test_reasoning_effort_that_the_template_does_not_know_is_refused():
    with pytest.raises(RequestError, match="knows no such thing") as caught:
        renderer(Template()).render(conversation(reasoning_effort="high"))
    assert caught.value.param == "reasoning_effort"


def test_documents_that_the_template_does_not_show_are_refused():
    shows, hides = Template({"documents"}), Template()
    body = conversation(documents=[{"title": "a", "text": "b"}])
    renderer(shows).render(body)
    assert shows.calls[0][1]["documents"] == body.documents
    with pytest.raises(RequestError, match="shows none") as caught:
        renderer(hides).render(body)
    assert caught.value.param == "documents"
    renderer(hides).render(conversation(documents=[]))


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
