"""Tool calls of a conversation in the form that a template takes, with real templates."""

import json

import pytest

from octavo.entrypoints.chat_template import ChatTemplate
from support.real_templates import extracts, real_tokenizer

USER = {"role": "user", "content": "q"}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def conversation(arguments, content=None):
    function = {"name": "f", "arguments": arguments}
    call = {"id": "call_1", "type": "function", "function": function}
    return [
        USER,
        {"role": "assistant", "content": content, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "result"},
        USER,
    ]


def template(name):
    return ChatTemplate(extracts()[name]["chat_template"], real_tokenizer(name))


def made(source):
    return ChatTemplate(source, real_tokenizer("qwen3"))


CALLS = "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}%s{% endfor %}{% endfor %}"  # noqa: E501


def with_calls(expression):
    return made(CALLS.replace("%s", expression))


@pytest.mark.parametrize("name", ["qwen3", "deepseek_v3"])
@pytest.mark.parametrize("arguments", ['{"x":  1.50, "y": "é\\u00e9"}', '{"x": ', "[1]", "", "no"])
def test_real_templates_show_arguments_as_the_model_wrote_them(name, arguments):
    text = template(name).render(conversation(arguments), tools=TOOLS)
    assert (arguments or "{}") in text
    assert "result" in text


def test_a_real_template_is_rendered_as_transformers_would():
    text = template("qwen3").render(conversation('{"x": 1}'), tools=TOOLS)
    assert '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>' in text
    assert text.endswith("<|im_start|>assistant\n")
    assert "<tools>" in text
    thoughts = [USER, {"role": "assistant", "content": "a", "reasoning": "hm"}]
    assert "<think>\nhm\n</think>\n\na" in template("qwen3").render(thoughts)
    off = template("qwen3").render([USER], enable_thinking=False)
    assert off.endswith("<think>\n\n</think>\n\n")


def test_deepseek_loses_no_call_that_has_no_text():
    text = template("deepseek_v3").render(conversation('{"x": 1}'))
    assert 'f\n```json\n{"x": 1}\n```' in text


@pytest.mark.parametrize(
    ("expression", "given", "shown"),
    [
        ("{{ c.function.name }}{{ c.function.arguments | tojson }}", '{"a": "é"}', '{"a": "é"}'),
        ("{{ c.function.name ~ c.function.arguments }}", '{"a":1}', '{"a":1}'),
        ("{{ c.function.name + c.function.arguments }}", {"a": 1}, '{"a": 1}'),
        (
            "{{ c.function.name }}{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}"
            "{% endfor %}",
            '{"a": 1}',
            "a=1",
        ),
        (
            "{{ c.function.name }}{% for k, v in c.function.arguments | items %}{{ k }}={{ v }}"
            "{% endfor %}",
            '{"a": ',
            'arguments={"a": ',
        ),
    ],
)
def test_templates_get_arguments_in_the_form_they_take(expression, given, shown):
    assert shown in with_calls(expression).render(conversation(given))


@pytest.mark.parametrize(
    "call",
    [
        {},
        {"function": None},
        {"function": {}},
        {"function": {"name": "f"}},
        {"function": {"name": "f", "arguments": None}},
        {"function": {"name": "f", "arguments": 5}},
        {"id": 5, "type": None, "function": {"name": "f", "arguments": "{"}},
    ],
)
@pytest.mark.parametrize("name", ["qwen3", "deepseek_v3", "llama3_1"])
def test_a_broken_call_never_ends_a_conversation(name, call):
    messages = conversation("{}")
    messages[1]["tool_calls"] = [call]
    assert "result" in template(name).render(messages, tools=TOOLS)


def test_the_clients_messages_are_left_alone():
    messages = conversation('{"a": 1}')
    before = json.dumps(messages)
    template("qwen3").render(messages)
    assert json.dumps(messages) == before


def test_the_variables_a_template_reads():
    assert "enable_thinking" in template("qwen3").variables
    assert "tools" not in template("gemma3").variables
